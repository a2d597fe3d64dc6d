package e2e

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

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
func (f *fleetUnderTest) completes(t *testing.T, viewer string) {
	for args, want := range map[string]string{
		"get sites --kubeconfig KC p":        "paris\n:4\n",
		"get sites --kubeconfig KC paris ly": "lyon\n:4\n",
		"get sites --kubeconfig KC paris p":  ":4\n",
		"describe site --kubeconfig KC x":    ":4\n",
	} {
		out := &lines{}
		if err := f.runArgs(t.Context(), out, append([]string{"__complete"}, strings.Fields(strings.ReplaceAll(args, "KC", viewer))...)); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: %q, %v; want %q", args, out, err, want)
		}
	}
	out := &lines{}
	if err := f.run(t.Context(), out, viewer, "get", "sites", "-A"); err != nil || !strings.HasPrefix(out.String(), "TENANT") {
		t.Errorf("get sites -A: %q, %v", out, err)
	}
}
