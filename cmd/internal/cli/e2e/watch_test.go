package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
)

// lines collects what is printed.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// watches: after the list, what changes is printed in the list's columns, and nothing of
// what was not asked for.
func (f *fleetUnderTest) watches(t *testing.T, viewer string) {
	out := &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- f.run(ctx, out, viewer, strings.Fields("get sites paris -w -T acme")...)
	}()
	touch := func(name string, phase fleet.Phase) {
		t.Helper()
		s := &v1alpha1.Site{ObjectMeta: meta("acme", "system", name)}
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			t.Fatal(err)
		}
		was := s.DeepCopy()
		s.Status.Phase = phase
		if err := f.admin.Status().Patch(ctx, s, client.MergeFrom(was)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.EventuallyTrue(t, "the list is printed", func() bool { return strings.Contains(out.String(), "paris") })
	touch("lyon", fleet.PhaseDecommissioned)
	touch("paris", fleet.PhaseDecommissioned)
	testkit.EventuallyTrue(t, "paris is printed as it changes", func() bool { return strings.Contains(out.String(), "Decommissioned") })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("get sites -w: %v", err)
	}
	text := strings.Split(out.String(), "\n")
	at := strings.Index(text[0], "PHASE")
	changed := slices.IndexFunc(text, func(line string) bool { return strings.Contains(line, "Decommissioned") })
	if strings.Contains(out.String(), "lyon") || strings.Index(text[changed], "Decommissioned") != at {
		t.Errorf("get sites paris -w:\n%s", out)
	}
}

// completes: names that go on from what is typed, and none twice where several are taken. With --all-tenants
// the column of tenants is there for who has one.
func (f *fleetUnderTest) completes(t *testing.T, viewer, stranger string) {
	complete := func(kubeconfig string, args ...string) string {
		t.Helper()
		out := &lines{}
		args = append([]string{"__complete"}, args...)
		at := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "--") })
		if at < 0 {
			at = len(args) - 1
		}
		if err := f.runArgs(t.Context(), out, slices.Insert(args, at, "--kubeconfig", kubeconfig)); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		words, _, _ := strings.Cut(out.String(), "Completion ended")
		return strings.Join(strings.Fields(words), " ")
	}
	for args, want := range map[string]string{
		"get sites p":                                 "paris :4",
		"get sites paris ly":                          "lyon :4",
		"get sites paris p":                           ":4",
		"describe site x":                             ":4",
		"describe site paris ":                        ":4",
		"approve paris l":                             "lyon :4",
		"alerts --site lyon,pa":                       "lyon,paris :4",
		"alerts --site paris,pa":                      ":4",
		"get virtualsites ":                           "shared/stores shop/canary :4",
		"get virtualsites sh":                         "shared/stores shop/canary :4",
		"get virtualsites sho":                        "shop/canary :4",
		"get virtualsites shop/canary s":              "shared/stores stores :4",
		"get virtualsites stores s":                   "shop/canary :4",
		"get virtualsites ca":                         ":4", // its namespace has to be named
		"virtualsite plan shop/":                      "shop/canary :4",
		"virtualsite plan shop/canary ":               ":4",
		"timeline --virtual-site st":                  "stores :4",
		"timeline --virtual-site shared/":             "shared/stores :4",
		"get sites -T acme-eu r":                      ":1", // an error: it is not theirs
		"get virtualsites -T acme-eu ":                ":4", // nothing of theirs
		"gate check --peers shop":                     "shop/canary :4",
		"rollout start shop cm/mine --blue sh":        "shared/stores shop/canary :4",
		"vk8s render shop/vk8s cm/mine --site p":      "paris :4",
		"rollout retry shop/to-retry --site paris,ly": "paris,lyon :4",
	} {
		if got := complete(viewer, strings.Split(args, " ")...); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
	// Every verb that takes a site, or a virtual site, by a flag completes it.
	root, found := &cobra.Command{Use: "muster"}, 0
	root.AddCommand(cli.Commands(&cli.Globals{})...)
	for _, path := range leaves(root) {
		words := strings.Fields(path)[1:]
		cmd, _, err := root.Find(words)
		if err != nil {
			t.Fatal(err)
		}
		for flag, of := range map[string][2]string{"site": {"par", "paris :4"}, "virtual-site": {"shared/s", "shared/stores :4"}} {
			if cmd.Flags().Lookup(flag) == nil || cmd.Flags().Lookup("kubeconfig") == nil {
				continue // or asks nobody: muster site manifest --site names a site to be
			}
			found++
			if got := complete(viewer, append(words, "--"+flag, of[0])...); got != of[1] {
				t.Errorf("%s --%s: %q, want %q", path, flag, got, of[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d flags were found", found)
	}
	if got := complete(stranger, "get", "sites", "p"); got != ":1" {
		t.Errorf("a stranger: %q", got)
	}
	out := &lines{}
	if err := f.run(t.Context(), out, viewer, "get", "sites", "-A"); err != nil || !strings.HasPrefix(out.String(), "TENANT") {
		t.Errorf("get sites -A: %q, %v", out, err)
	}
}
