package fleetapi

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

func softwareItem(d *wire.DesiredState) *wire.Item { return itemOf(d, software.Kind) }

func itemOf(d *wire.DesiredState, kind string) *wire.Item {
	if i := slices.IndexFunc(d.GetItems(), func(it *wire.Item) bool { return it.Kind == kind }); i >= 0 {
		return d.Items[i]
	}
	return nil
}

// Agents that do not know of software are not sent any, until they are newer ones; what a
// site says of its own stands in its status, and downloads are written in steps.
func TestSoftware(t *testing.T) {
	w := newWorld(t)
	old, young := w.site("old"), w.site("young")
	w.know(&v1alpha1.SoftwarePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "agent", Generation: 1}, Spec: v1alpha1.SoftwarePolicySpec{Component: "agent", Version: "1.4.2"}})
	w.started()
	paris := w.regionalThat("paris", wire.Capability)
	up := func(name string, capability uint32) {
		paris.send(&wire.RelayUp{Msg: &wire.RelayUp_Up{Up: &wire.SiteUp{Tenant: "acme", Site: name, Hello: &wire.Hello{AgentVersion: "1.0.0", Capability: capability}}}})
	}
	up("old", 5)
	up("young", wire.Capability)
	w.eventually("the young one is told", func() bool { return softwareItem(paris.desiredOf(young)) != nil })
	w.eventually("the old one has the rest", func() bool { return paris.desiredOf(old) != nil })
	if it := softwareItem(paris.desiredOf(old)); it != nil || len(paris.desiredOf(old).Items) == 0 || paris.desiredOf(old).Revision != wire.RevisionOf(paris.desiredOf(old).Items) {
		t.Errorf("the old one got %v of %v", it, paris.desiredOf(old))
	}
	if s, why := func() (SoftwareStanding, string) {
		s := w.server.SoftwareOf(old)
		return s.Standing("agent", "", "1.4.2")
	}(); s != SoftwareFailed || !strings.Contains(why, "1.0.0") {
		t.Errorf("of the old one: %v, %s", s, why)
	}
	up("old", wire.Capability)
	w.eventually("the old one was updated by hand, and is told", func() bool { return softwareItem(paris.desiredOf(old)) != nil })

	digest := softwareItem(paris.desiredOf(young)).Digest
	if digest != w.store.SoftwareDigest(young, "agent") {
		t.Error("the store tells of another digest than it sends")
	}
	say := func(state string, percent uint32, digest string) {
		paris.report(young, &wire.Report{Software: []*wire.SoftwareStatus{{Component: "agent", Running: "1.4.1", Wanted: "1.4.2", State: state, Percent: percent, Digest: digest}}})
	}
	stands := func(want SoftwareStanding) func() bool {
		return func() bool {
			s := w.server.SoftwareOf(young)
			got, _ := s.Standing("agent", digest, "1.4.2")
			return got == want
		}
	}
	if !stands(SoftwareUnheard)() {
		t.Error("it said nothing, and that counts")
	}
	say("Done", 0, strings.Repeat("b", 64))
	w.eventually("what it said is taken", func() bool { return w.server.SoftwareOf(young).Told })
	if !stands(SoftwareUnheard)() {
		t.Error("what it says of something else counts")
	}
	say("Downloading", 43, digest)
	w.eventually("it stands in the status", func() bool {
		s := w.get("young").Status.Software
		return len(s) == 1 && s[0].State == v1alpha1.SoftwareDownloading && *s[0].Percent == 40
	})
	if !stands(SoftwareMoves)() {
		t.Error("a download is no progress")
	}
	writes := w.writes.Load()
	say("Downloading", 49, digest)
	say("Scheduled", 0, digest)
	w.eventually("it waits", stands(SoftwareWaits))
	w.eventually("and says so", func() bool { return w.get("young").Status.Software[0].State == v1alpha1.SoftwareScheduled })
	if n := w.writes.Load() - writes; n > 2 {
		t.Errorf("%d writes", n)
	}
	say("Done", 0, digest)
	w.eventually("it is done", stands(SoftwareDone))
	paris.report(young, &wire.Report{})
	w.eventually("it can't replace it any more", func() bool { return w.get("young").Status.Software == nil })
	if !stands(SoftwareFailed)() {
		t.Error("a site without a driver is waited for")
	}
}
