package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// copied is a tree of what is read and written, as it is checked in.
func copied(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files, err := filepath.Glob(filepath.Join(root, typesDir, "type_*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range append(files, filepath.Join(root, kinds), filepath.Join(root, table), filepath.Join(root, schema)) {
		rel, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, rel), text(t, path))
	}
	return dir
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is checked in is what the types' files say.
func TestUpToDate(t *testing.T) {
	dir := copied(t)
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{kinds, table, schema} {
		if text(t, filepath.Join(dir, path)) != text(t, filepath.Join(root, path)) {
			t.Errorf("%s is not what the files of the types say: make generate", path)
		}
	}
}

// A type is one file: with it the type is evaluated, known to control and in the schema, and
// without it in none of them.
func TestATypeIsOneFile(t *testing.T) {
	dir := copied(t)
	write(t, filepath.Join(dir, typesDir, "type_dead_letter.go"), `package logrules

type deadLetter struct{ plain }

func (deadLetter) about() logrule.Type {
	return logrule.Type{Needs: []string{"fields"}, Lasts: logrule.Itself}
}
`)
	if err := os.Remove(filepath.Join(dir, typesDir, "type_any.go")); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	for path, c := range map[string]struct{ has, hasNot string }{
		kinds:  {"logrule.DeadLetter: ", "logrule.Any:"},
		table:  {"Name:  DeadLetter,\n\t\tNeeds: []string{\"fields\"}, Lasts: Itself,", "Any"},
		schema: {"Enum=blacklist;cardinality;change;dead_letter;flatline;", "Enum=any;"},
	} {
		if got := text(t, filepath.Join(dir, path)); !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%s: want %q in it and %q not:\n%s", path, c.has, c.hasNot, got)
		}
	}
	write(t, filepath.Join(dir, typesDir, "type_mute.go"), "package logrules\n\ntype mute struct{ plain }\n")
	if err := run(dir); err == nil || !strings.Contains(err.Error(), "type_mute.go: there is no method about") {
		t.Errorf("a type that says nothing of itself: %v", err)
	}
}
