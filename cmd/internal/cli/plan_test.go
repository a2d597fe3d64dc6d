package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

func TestPlan(t *testing.T) {
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "paris"}}
	c := fakeClient(t, s)
	do := func(w window, args ...string) (string, error) {
		var now v1alpha1.Site
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), &now); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		said, err := w.run(&out, planned{now.Name, "site", &now.Spec.MaintenanceWindows, func(change func()) error { return patchSite(t.Context(), c, &now, change) }}, args)
		return out.String() + said, err
	}
	for _, c := range []struct {
		w    window
		want string
	}{
		{window{start: "2026-01-31T22:00:00Z", length: time.Hour}, "--reason"},
		{window{reason: "x", length: time.Hour}, "--start"},
		{window{reason: "x", start: "2026-01-31T22:00:00Z", schedule: "0 2 * * *", length: time.Hour}, "--start"},
		{window{reason: "x", start: "tomorrow", length: time.Hour}, "--start"},
		{window{reason: "x", schedule: "sometimes", length: time.Hour}, "schedule"},
		{window{reason: "x", schedule: "0 2 * * *", zone: "Moon", length: time.Hour}, "timeZone"},
		{window{drop: true}, "no window"},
	} {
		if _, err := do(c.w, "w"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error that names %s", c.w, err, c.want)
		}
	}
	for _, w := range []window{{reason: "first", schedule: "0 2 * * *", length: time.Hour}, {reason: "updates", schedule: "0 2 * * SUN", zone: "Europe/Paris", length: 2 * time.Hour}} {
		if said, err := do(w, "w"); err != nil || !strings.Contains(said, "is planned") {
			t.Errorf("%q, %v", said, err)
		}
	}
	if _, err := do(window{reason: "disks", start: time.Now().Add(-time.Minute).Format(time.RFC3339), length: time.Hour}, "now"); err != nil {
		t.Error(err)
	}
	out, err := do(window{})
	if err != nil || strings.Contains(out, "first") || !strings.Contains(out, "0 2 * * SUN Europe/Paris") || !strings.Contains(out, "open until") || !strings.Contains(out, "paris: 2 planned") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := do(window{drop: true}, "w"); err != nil {
		t.Error(err)
	}
	if out, err := do(window{}); err != nil || strings.Contains(out, "updates") || !strings.Contains(out, "paris: 1 planned") {
		t.Errorf("%q, %v", out, err)
	}
}
