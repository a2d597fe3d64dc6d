package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite edge-modules.txt")

const module = "muster.dev/muster/"

type pkg struct {
	ImportPath   string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
	Module       *struct{ Path string }
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	at := []string{"list"}
	if args[0] == "-C" { // of another module
		at, args = []string{"-C", args[1], "list"}, args[2:]
	}
	cmd := exec.Command("go", append(append(at, "-json=ImportPath,Doc,Imports,TestImports,XTestImports,GoFiles,Module"), args...)...)
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// The tiers, by folder. Nothing below them may know them, and none may know
// another: what one needs from another it declares as an interface.
var tiers = []string{"collector", "regional", "aggregator", "health", "alerting", "control", "dashboards", "loadtest"}

// openPackages of a tier may be imported by every central tier, with the reason.
var openPackages = map[string]string{
	"control/api": "the CRD types are the fleet's vocabulary towards Kubernetes; every central tier reads or writes them",
}

func tierOf(path string) string {
	first, _, _ := strings.Cut(path, "/")
	if slices.Contains(tiers, first) {
		return first
	}
	return ""
}

func isOpen(path string) bool {
	for open := range openPackages {
		if path == open || strings.HasPrefix(path, open+"/") {
			return true
		}
	}
	return false
}

func TestImportsPointOneWay(t *testing.T) {
	for _, p := range list(t, "./...") {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			switch {
			case strings.HasPrefix(to, "cmd/internal/") && strings.HasPrefix(from, "cmd/"):
			case strings.HasPrefix(to, "cmd/"):
				t.Errorf("%s imports %s: composition stands above the tiers; only commands know it", from, to)
			case strings.HasPrefix(to, "internal/testkit") && !strings.HasPrefix(from, "internal/testkit"):
				t.Errorf("%s imports %s: test helpers don't ship", from, to)
			case tierOf(to) == "" || isOpen(to):
			case tierOf(from) == tierOf(to), strings.HasPrefix(from, "cmd/"):
			case tierOf(from) != "":
				t.Errorf("%s imports %s: no tier imports another; declare the small interface you need and let cmd/internal connect them", from, to)
			case strings.HasPrefix(from, "internal/testkit"):
			default:
				t.Errorf("%s imports %s: shared packages lie below the tiers and don't know them", from, to)
			}
		}
	}
}

func TestAgentIsTheEdgeHalf(t *testing.T) {
	for _, p := range list(t, "./control/agent/...") {
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && tierOf(to) == "control" && !strings.HasPrefix(to, "control/agent") {
				t.Errorf("%s imports %s: the agent runs on sites and talks to control over internal/wire alone", p.ImportPath, to)
			}
		}
	}
}

// logParts of regional/logs may import these others of it; see its package comment.
var logParts = map[string][]string{
	"intake":          {"store"},
	"query":           {"store"},
	"store/embedded":  {"store", "store/internal/stamp"},
	"store/elastic":   {"store", "store/internal/stamp"},
	"store/storetest": {"store"},
}

// logTouch is which parts of regional/logs may touch a thing: the disk, the network, a
// library that keeps lines. Those that are not here touch none of them.
var logTouch = map[string][]string{
	"os":                           {"intake", "store/embedded"},
	module + "internal/disk":       {"intake", "store/embedded"},
	module + "internal/spool":      {"intake"},
	module + "internal/atomicfile": {"intake", "store/embedded"},
	"net":                          {"intake"},
	"net/http":                     {"intake", "query", "store/elastic"},
	"crypto/tls":                   {"intake", "store/elastic"},
	"go.etcd.io/bbolt":             {"store/embedded"},
	"github.com/blevesearch/":      {"store/embedded"},
	"github.com/elastic/":          {"store/elastic"},
}

func TestLogPartsTouchWhatIsTheirsAlone(t *testing.T) {
	const root = "regional/logs/"
	seen := map[string]bool{}
	for _, p := range list(t, "./regional/logs/...") {
		from, _ := strings.CutPrefix(p.ImportPath, module+root)
		if from == "store/storetest" { // a suite of tests
			continue
		}
		for _, imp := range p.Imports {
			for what, homes := range logTouch {
				if imp != what && !(strings.HasSuffix(what, "/") && strings.HasPrefix(imp, what)) {
					continue
				}
				seen[what+" "+from] = true
				if !slices.Contains(homes, from) {
					t.Errorf("regional/logs: %s imports %s, which is for %v alone; see the comment of package regional/logs", from, imp, homes)
				}
			}
		}
	}
	for what, homes := range logTouch {
		for _, home := range homes {
			if !seen[what+" "+home] {
				t.Errorf("regional/logs: %s does not import %s any more: take it off the list", home, what)
			}
		}
	}
}

func TestLogPartsKnowTheirNeighbourAlone(t *testing.T) {
	const root = "regional/logs/"
	for _, p := range list(t, "./regional/logs/...") {
		from, _ := strings.CutPrefix(p.ImportPath, module+root)
		for _, imp := range p.Imports {
			if to, inside := strings.CutPrefix(imp, module+root); inside && !slices.Contains(logParts[from], to) {
				t.Errorf("regional/logs: %s imports %s; the comment of package regional/logs says what each part may touch", from, to)
			}
		}
	}
}

// heavy imports take minutes to build; each has one home, so that most tests
// build in seconds. A site's cluster, for tests, is a command of its own that they start.
var heavy = map[string][]string{
	"k8s.io/kubernetes/":               {"control/apiserver", "internal/testkit/kubesite/cluster"},
	"go.etcd.io/etcd/server/":          {"control/apiserver"},
	"go.etcd.io/etcd/etcdutl/":         {"control/apiserver"},
	"github.com/cortexproject/cortex/": {"aggregator/cortex"},
}

func TestHeavyImportsHaveOneHome(t *testing.T) {
	for _, p := range list(t, "./...") {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for prefix, homes := range heavy {
				if strings.HasPrefix(imp, prefix) && !slices.Contains(homes, from) {
					t.Errorf("%s imports %s: it belongs in %v alone", from, imp, homes)
				}
			}
		}
	}
}

// grafanaPlugin is a Go module of its own: Cortex pins an older gRPC than Grafana's SDK
// compiles with.
const grafanaPlugin = "dashboards/grafana/plugin"

func TestTheGrafanaPluginKnowsTheConsoleAlone(t *testing.T) {
	for _, p := range list(t, "-C", grafanaPlugin, "./...") {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if to, ours := strings.CutPrefix(imp, module); ours && !strings.HasPrefix(to, grafanaPlugin) {
				t.Errorf("%s imports %s: the plugin asks the console's public API as a user, and knows nothing else", p.ImportPath, to)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range slices.Concat(list(t, "./..."), list(t, "-C", grafanaPlugin, "./...")) {
		if len(p.GoFiles) > 0 && len(strings.Fields(p.Doc)) < 6 {
			t.Errorf("%s: wants a package comment: what it is for, what it must not do, who calls it (has %q)", p.ImportPath, p.Doc)
		}
	}
}

// TestEdgeModules holds the edge binary to a checked-in list of modules: on a site
// every dependency costs memory, bytes over a thin uplink and an update of the
// whole fleet when it has a hole.
func TestEdgeModules(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, "-deps", "./cmd/muster-edge") {
		if p.Module != nil {
			seen[p.Module.Path] = true
		}
		to, ours := strings.CutPrefix(p.ImportPath, module)
		allowed := []string{"collector", "control/agent", "internal/", "cmd/muster-edge", "cmd/internal/edge", "cmd/internal/role"}
		if ours && !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(to, a) }) {
			t.Errorf("the edge binary links %s, which is central code", to)
		}
	}
	var mods []string
	for m := range seen {
		mods = append(mods, m)
	}
	slices.Sort(mods)
	got := strings.Join(mods, "\n") + "\n"
	const file = "edge-modules.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		for _, m := range mods {
			if !slices.Contains(strings.Fields(string(want)), m) {
				t.Errorf("new in the edge binary: %s", m)
			}
		}
		t.Errorf("the modules of the edge binary changed; if that is meant, say why in the commit and run: go test ./internal/archtest -update")
	}
}
