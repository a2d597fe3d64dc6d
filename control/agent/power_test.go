package agent_test

import (
	"path/filepath"
	"testing"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/testkit/powercut"
)

// TestPowerLoss cuts a site's power when it has told that a policy is applied: what it
// joined with, its identity and the policy are there, without anybody to ask.
func TestPowerLoss(t *testing.T) {
	root := t.TempDir()
	powercut.Run(t, root, func(root string) {
		dir := filepath.Join(root, "made", "now")
		if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r := fakeregional.Start(t, fakeregional.Options{})
		join(t, dir, []*fakeregional.Regional{r})
		start(t, dir, nil)
		for _, content := range []string{"one", "two"} {
			st := r.SetDesired(paris, policy(content))
			r.Eventually("applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
		}
	})
	s := start(t, filepath.Join(root, "made", "now"), nil)
	waits := fakeregional.Start(t, fakeregional.Options{}) // which the site doesn't know
	waits.Eventually("applied from disk", func() bool { return s.rec.last() == "effective=two" })
	if got := s.Status(); got.Tenant != "acme" || got.Site != "paris" || got.Certificate == nil {
		t.Errorf("after the power cut: %+v", got)
	}
}
