// Package guides has the commands that README.md and docs have people type, for the tests that
// hold them against what there is. Only tests call it.
package guides

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

// Command is one that a guide has people type.
type Command struct {
	At   string   // FILE:LINE
	Line string   // as it stands there
	Args []string // without the program; what a shell would put in has its text, such as $TOKEN
}

// Root is the checkout's directory.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("this is no checkout: go.mod is not above")
		}
		dir = parent
	}
}

// Commands are those of a program in all guides, in blocks and in sentences. What was decided
// once, in docs/decisions, is no guide: verbs that were proposed stand there too.
func Commands(t testing.TB, program string) []Command {
	t.Helper()
	root := Root(t)
	files := []string{"README.md"}
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() == "decisions" {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			rel, _ := filepath.Rel(root, path)
			files = append(files, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var out []Command
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, find(f, string(b), program)...)
	}
	if len(out) == 0 {
		t.Fatalf("no guide has a command of %s", program)
	}
	return out
}

// Below are those of a program in a file's section of a heading, such as "## Install".
func Below(t testing.TB, file, heading, program string) []Command {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(Root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	_, below, ok := strings.Cut(string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	section, _, _ := strings.Cut(below, "\n## ")
	return find(file, section, program)
}

var (
	block = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// find are the commands of a program in a guide.
func find(file, text, program string) []Command {
	var out []Command
	see := func(offset int, code string) {
		line := 1 + strings.Count(text[:offset], "\n")
		for _, args := range calls(code, program) {
			out = append(out, Command{At: file + ":" + strconv.Itoa(line), Line: strings.TrimSpace(code), Args: args})
		}
	}
	prose := []byte(text)
	for _, m := range block.FindAllStringSubmatchIndex(text, -1) {
		for i := m[0]; i < m[1]; i++ {
			if prose[i] != '\n' {
				prose[i] = ' '
			}
		}
		at, code := m[2], text[m[2]:m[3]]
		if strings.ContainsAny(code, "│├└▼▶→") { // a drawing
			continue
		}
		for len(code) > 0 {
			n := lineEnd(code)
			see(at, code[:n])
			at, code = at+n, code[n:]
		}
	}
	for _, m := range span.FindAllSubmatchIndex(prose, -1) {
		see(m[2], text[m[2]:m[3]])
	}
	return out
}

// lineEnd is where the first line of a block ends, with those that continue it.
func lineEnd(code string) int {
	for n := 0; ; {
		i := strings.IndexByte(code[n:], '\n')
		if i < 0 {
			return len(code)
		}
		n += i + 1
		if !strings.HasSuffix(code[:n], "\\\n") {
			return n
		}
	}
}

// calls are the arguments of a program in a line of shell, wherever in it. A line that is no
// shell, such as what a program prints, has none.
func calls(line, program string) [][]string {
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	line = strings.TrimPrefix(line, "# ") // of root
	f, err := syntax.NewParser().Parse(strings.NewReader(line), "")
	if err != nil {
		return nil
	}
	var out [][]string
	syntax.Walk(f, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, text(w))
		}
		// Also what another program runs, such as sudo and kubectl exec.
		for i, w := range words {
			if i == 0 && strings.HasSuffix(w, "/"+program) || w == program && (i == 0 || words[i-1] == "--" || words[0] == "sudo") {
				out = append(out, words[i+1:])
			}
		}
		return true
	})
	return out
}

// text is a word without its quotes; what is not literal stands as it is written.
func text(w *syntax.Word) string {
	var b bytes.Buffer
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(p.Value, "\\\n", ""))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(text(&syntax.Word{Parts: p.Parts}))
		default:
			_ = syntax.NewPrinter().Print(&b, &syntax.Word{Parts: []syntax.WordPart{p}})
		}
	}
	return b.String()
}
