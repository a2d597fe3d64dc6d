package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// makesFiles are the functions of package os that make, replace or rename files. What they
// leave may be torn by a power cut, or gone with its name. internal/atomicfile replaces a
// file so that it is the old or the new, and internal/disk says what is synced, and lets
// tests cut the power. (*os.File).Write needs one of these before it.
var makesFiles = []string{"Create", "CreateTemp", "Link", "Mkdir", "MkdirAll", "OpenFile", "Rename", "Symlink", "Truncate", "WriteFile"}

// unsafeFiles may call some of them all the same, by file, with the reason.
var unsafeFiles = map[string]struct {
	calls []string
	why   string
}{
	"internal/disk/lock.go":                    {[]string{"OpenFile"}, "a lock's content is a word for whom it keeps out"},
	"internal/disk/disk.go":                    {[]string{"Mkdir", "OpenFile", "Rename"}, "these are the operations"},
	"cmd/internal/demo/demo.go":                {[]string{"OpenFile"}, "the demo's own log"},
	"cmd/internal/docsgen/main.go":             {[]string{"WriteFile"}, "a tool of the build"},
	"cmd/internal/logruletypes/main.go":        {[]string{"WriteFile"}, "a tool of the build"},
	"control/registration/audit.go":            {[]string{"OpenFile", "Rename"}, "a log that is appended to and rotated, of which nobody is told that a line is kept"},
	"dashboards/console/seal.go":               {[]string{"CreateTemp", "Link"}, "a link, unlike a rename, fails where another process was first; file and name are synced"},
	"control/backup/backup.go":                 {[]string{"CreateTemp"}, "what is to be put into an archive, removed before it is ready"},
	"cmd/internal/cli/softwareadd.go":          {[]string{"CreateTemp"}, "a copy to compare with, removed before the command ends"},
	"internal/software/delivery/cache.go":      {[]string{"CreateTemp"}, "a cache of files that each start reads again, and their readers verify"},
	"regional/logs/store/storetest/figures.go": {[]string{"Create"}, "a test's"},
}

func TestFilesAreReplacedSafely(t *testing.T) {
	used := map[string][]string{}
	for _, p := range list(t, "./...") {
		dir := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(dir, "internal/testkit") || strings.HasPrefix(dir, "loadtest") {
			continue // they measure and test; nobody is told that they keep anything
		}
		for _, name := range p.GoFiles {
			path := filepath.Join(dir, name)
			for call, at := range callsOfOS(t, filepath.Join("../..", path)) {
				if !slices.Contains(makesFiles, call) {
					continue
				}
				used[path] = append(used[path], call)
				if !slices.Contains(unsafeFiles[path].calls, call) {
					t.Errorf("%s:%d: os.%s: what it leaves may be torn or gone after a power cut; use internal/atomicfile or internal/disk, or say in unsafeFiles why it doesn't matter", path, at, call)
				}
			}
		}
	}
	for path, allowed := range unsafeFiles {
		for _, call := range allowed.calls {
			if !slices.Contains(used[path], call) {
				t.Errorf("%s: doesn't call os.%s any more; take it out of unsafeFiles", path, call)
			}
		}
	}
}

// callsOfOS returns what a file uses of package os, and a line where it does.
func callsOfOS(t *testing.T, path string) map[string]int {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	local := ""
	for _, imp := range f.Imports {
		if p, _ := strconv.Unquote(imp.Path.Value); p == "os" {
			if local = "os"; imp.Name != nil {
				local = imp.Name.Name
			}
		}
	}
	out := map[string]int{}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local != "" && x.Name == local {
				out[sel.Sel.Name] = fset.Position(sel.Pos()).Line
			}
		}
		return true
	})
	return out
}
