package components

import (
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sw "muster.dev/muster/internal/software"
)

type store map[string][]byte

func (s store) Load(name string) ([]byte, error) {
	b, ok := s[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return b, nil
}

func (s store) Save(name string, b []byte) error {
	s[name] = b
	return nil
}

// A pod that comes up elsewhere trusts the root that the one before trusted, whatever control
// sends by then, and what was seen of the repository; and goes on where that one was.
func TestWhatAPodRemembers(t *testing.T) {
	s := store{}
	pod := func() (*Components, string) {
		t.Helper()
		dir := t.TempDir()
		c, err := New(Options{Dir: dir, Components: []Component{{Name: "agent", Driver: driver{}, Architecture: sw.Kubernetes}}, Logger: slog.New(slog.DiscardHandler), Store: s})
		if err != nil {
			t.Fatal(err)
		}
		return c, dir
	}
	says := func(dir string, want map[string]string) {
		t.Helper()
		for name, text := range want {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil && text != "" || string(b) != text {
				t.Errorf("%s: %q, want %q: %v", name, b, text, err)
			}
		}
	}
	c, dir := pod()
	said := map[string]string{}
	machines := []sw.File{{Architecture: "any", Target: "agent/2.0.0/any", Digest: strings.Repeat("0a", 32), Size: 7}}
	c.TakeSet(set(said, &sw.Wanted{Component: "agent", Version: "2.0.0", Files: machines, Root: json.RawMessage(`{"first":1}`)}))
	if _, err := c.parts[0].machine.Step(t.Context(), c.parts[0].wanted); err != nil {
		t.Fatal(err)
	}
	if st := c.Statuses(); len(st) != 1 || !strings.Contains(st[0].Message, "it has no file for kubernetes") {
		t.Errorf("files of machines are none of images: %+v", st)
	}
	trust := filepath.Join(dir, "agent", "trust")
	if err := os.MkdirAll(trust, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"timestamp.json": "7", "2.root.json": "two", "targets.json": "a lot", "timestamp.json.tmp": "torn"} {
		if err := os.WriteFile(filepath.Join(trust, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.keepTrust("agent"); err != nil {
		t.Fatal(err)
	}

	c, dir = pod()
	c.TakeSet(set(said, &sw.Wanted{Component: "agent", Version: "2.0.0", Root: json.RawMessage(`{"second":1}`)}))
	if err := c.restoreTrust("agent"); err != nil {
		t.Fatal(err)
	}
	says(dir, map[string]string{"root.json": `{"first":1}`, "agent/trust/timestamp.json": "7", "agent/trust/2.root.json": "two", "agent/trust/targets.json": "", "agent/trust/timestamp.json.tmp": ""})

	// What this pod has seen since is newer than what was kept.
	if err := os.WriteFile(filepath.Join(dir, "agent", "trust", "timestamp.json"), []byte("8"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.restoreTrust("agent"); err != nil {
		t.Fatal(err)
	}
	says(dir, map[string]string{"agent/trust/timestamp.json": "8"})
	if len(s["agent.state.json"]) == 0 {
		t.Error("nothing was remembered of the walk")
	}
}
