package centre

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/loadtest/fleetload"
)

const (
	later = "later" // the tenant of the sites that joined since the backup
	sites = 6       // that the backup knows
)

// lost is a fleet that loses its control with its disk.
type lost struct{ *centre }

// A fleet's control is lost with its disk, and restored from a backup that was made while it ran.
// Sites and the regional have gone on; what happened since the backup is undone, and what is
// decided from then on reaches every site.
func TestControlIsRestored(t *testing.T) {
	if os.Getenv("MUSTER") == "" {
		t.Skip("MUSTER names no built muster: make test-go does")
	}
	l := lost{configure(t, t.TempDir(), "tenants: ["+tenant+", "+later+"]")}
	l.startControl()
	l.answers()
	l.startRegional()
	old := l.join(tenant, fleetload.Options{Sites: sites, Series: 1, MaxBackoff: 2 * time.Second})
	l.allow("before_backup_.*")
	l.applied(sites)

	l.run("backup", l.path("fleet.tar.gz"))
	if _, err := l.try("backup", l.path("fleet.tar.gz")); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second backup takes the first one's place: %v", err)
	}
	young := l.join(later, fleetload.Options{Sites: 2, Series: 1, MaxBackoff: 2 * time.Second})
	gone := &v1alpha1.Site{}
	gone.Namespace, gone.Name = fleet.SystemNamespace(tenant), "load-00000"
	if err := l.kube.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	l.allow("after_backup_.*")
	testkit.EventuallyTrue(t, "the deleted site is cut off", func() bool { return old.Connected() == sites-1 })

	l.kill()
	if _, err := l.try("restore", l.path("fleet.tar.gz")); err == nil || !strings.Contains(err.Error(), "move the directory away") {
		t.Errorf("it restores over what is there: %v", err)
	}
	if err := os.Rename(l.path("data", "control"), l.path("lost")); err != nil {
		t.Fatal(err)
	}
	l.run("restore", l.path("fleet.tar.gz"))
	l.startControl()
	l.answers()

	p, err := l.policy()
	if names := p.Spec.Allow.Patterns; err != nil || !slices.Contains(names, "before_backup_.*") || slices.Contains(names, "after_backup_.*") {
		t.Errorf("the policy is not as it was: %v, %v", names, err)
	}
	l.allow("restored_.*")
	l.applied(sites - 1)
	// Whom a regional refuses it goes on to refuse: a backup lets nobody back in.
	if n := old.Connected(); n != sites-1 {
		t.Errorf("%d sites are connected; of %d one was deleted", n, sites)
	}
	testkit.Eventually(t, "those that joined since are told what to do", func() error {
		if said := young.Tally().Counts().LastError; young.Connected() > 0 || !strings.Contains(said, "register the machine anew") {
			return fmt.Errorf("%d are connected: %s", young.Connected(), said)
		}
		return nil
	})
}

func (l *lost) policy() (*v1alpha1.CollectionPolicy, error) {
	var p v1alpha1.CollectionPolicy
	err := l.kube.Get(l.t.Context(), types.NamespacedName{Namespace: fleet.SystemNamespace(tenant), Name: "default"}, &p)
	return &p, err
}

// allow lets the policy of all sites allow one more name.
func (l *lost) allow(pattern string) {
	l.t.Helper()
	testkit.Eventually(l.t, "the policy is edited", func() error {
		p, err := l.policy()
		if err != nil {
			return err
		}
		p.Spec.Allow.Patterns = append(p.Spec.Allow.Patterns, pattern)
		return l.kube.Update(l.t.Context(), p)
	})
}

// applied waits until so many sites apply the policy as it is.
func (l *lost) applied(n int) {
	l.t.Helper()
	testkit.Eventually(l.t, "all sites apply the policy", func() error {
		p, err := l.policy()
		if err != nil {
			return err
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, "Applied"); c == nil || c.ObservedGeneration < p.Generation || int(p.Status.Applied) != n {
			return fmt.Errorf("%d of %d: %+v", p.Status.Applied, n, c)
		}
		return nil
	})
}
