package guides

import (
	"reflect"
	"testing"

	"github.com/spf13/cobra"
)

func TestFind(t *testing.T) {
	text := "Say `muster get x -o wide` or\n\n```\n$ muster one --a b \\\n    --c 'd e' | tee x && bin/muster two   # muster three\nmuster: what it says (1)\nsudo -u me muster four $(muster five)\nkubectl exec x -- muster six\n```\n\n```\n muster  │ box\n```\n"
	var got [][]string
	for _, c := range find("f", text, "muster") {
		got = append(got, c.Args)
	}
	want := [][]string{{"one", "--a", "b", "--c", "d e"}, {"two"}, {"four", "$(muster five)"}, {"five"}, {"six"}, {"get", "x", "-o", "wide"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTakes(t *testing.T) {
	root := func() *cobra.Command {
		run := func(*cobra.Command, []string) {}
		root, get, sites := &cobra.Command{Use: "muster"}, &cobra.Command{Use: "get"}, &cobra.Command{Use: "sites", Run: run}
		sites.Flags().StringP("query", "q", "", "")
		get.AddCommand(sites)
		rules := &cobra.Command{Use: "rules", Args: cobra.ArbitraryArgs, Run: run, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}} // by cli.RefuseUnknown
		rules.AddCommand(&cobra.Command{Use: "test", Run: run})
		root.AddCommand(get, rules)
		return root
	}
	for _, good := range [][]string{{"get"}, {"get", "sites", "-q", "x"}, {"get", "sites", "NAME", "--query=x"}, {"get", "sites", "-q"}, {"get", "…", "-w"}, {"get", "sites", "--help"}, {"rules", "test"}} {
		if err := takes(root(), good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range [][]string{{"nope"}, {"get", "nope"}, {"rules", "nope"}, {"get", "sites", "--nope"}, {"get", "sites", "-w"}} {
		if takes(root(), bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
