package routes

import (
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

// What the shipped rules inhibit, as a real Alertmanager sees it.
func TestShippedInhibitions(t *testing.T) {
	b, _, err := Merge(nil, noSecrets, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, c := t.Context(), runManager(t, b)
	cases := map[string]bool{ // labels → inhibited
		"alertname=SiteDown tenant=a site=paris severity=critical region=eu":              false,
		"alertname=DiskFull tenant=a site=paris severity=critical":                        true,
		"alertname=DiskFull tenant=a site=lyon severity=critical":                         false,
		"alertname=DiskFull tenant=b site=paris severity=critical":                        false,
		"alertname=NoSite tenant=a severity=warning":                                      false,
		"alertname=RegionDown tenant=a region=asia severity=critical":                     false,
		"alertname=SiteDown tenant=a site=tokyo region=asia severity=critical":            true,
		"alertname=RegionalDown tenant=a regional=r1 region=asia severity=critical":       true,
		"alertname=DiskFull tenant=a site=tokyo region=asia severity=warning":             true, // by its SiteDown
		"alertname=DiskFull tenant=a site=osaka region=asia severity=warning":             false,
		"alertname=SiteDown tenant=b site=tokyo region=asia severity=critical":            false,
		"alertname=SiteDown tenant=a site=nowhere severity=critical":                      false,
		"alertname=RegionalDown tenant=a regional=r2 region=us severity=critical":         false,
		"alertname=SiteDown tenant=a site=boston regional=r2 region=us severity=critical": true,
		"alertname=SiteDown tenant=a site=denver regional=r3 region=us severity=critical": false,
		"alertname=CPU tenant=a site=rome severity=critical":                              false,
		"alertname=CPU tenant=a site=rome severity=warning":                               true,
		"alertname=CPU tenant=a site=oslo severity=warning":                               false,
		"alertname=Memory tenant=a site=rome severity=warning":                            false,
		"alertname=CPU tenant=b site=rome severity=warning":                               false,

		// A site of a region that is down, as the dead-man tells of it: its own alert is
		// inhibited by the region's, and inhibits the rest of it, with and without a region.
		"alertname=SiteDown tenant=a site=kyoto regional=r3 region=asia severity=critical": true,
		"alertname=SiteUnhealthy tenant=a site=kyoto region=asia severity=critical":        true,
		"alertname=DiskFull tenant=a site=kyoto severity=critical":                         true,
		"alertname=SiteUnhealthy tenant=a site=seoul region=asia severity=critical":        false, // it is not silent
		"alertname=SiteUnhealthy tenant=b site=kyoto region=asia severity=critical":        false,
	}
	var alerts []wire.Alert
	key := func(labels map[string]string) string {
		var l []string
		for _, n := range []string{"alertname", "tenant", "site", "regional", "region", "severity"} {
			if labels[n] != "" {
				l = append(l, n+"="+labels[n])
			}
		}
		return strings.Join(l, " ")
	}
	want := map[string]bool{}
	for text, inhibited := range cases {
		a := wire.Alert{Labels: map[string]string{}}
		for f := range strings.FieldsSeq(text) {
			k, v, _ := strings.Cut(f, "=")
			a.Labels[k] = v
		}
		alerts = append(alerts, a)
		want[key(a.Labels)] = inhibited
	}
	if err := c.PostAlerts(ctx, alerts); err != nil {
		t.Fatal(err)
	}
	// The inhibitor hears of alerts a moment after the post.
	wrong := []string{"not asked yet"}
	for tries := 0; len(wrong) > 0 && tries < 3000 && ctx.Err() == nil; tries++ {
		got, err := c.Alerts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		wrong = nil
		for _, a := range got {
			if (len(a.Status.InhibitedBy) > 0) != want[key(a.Labels)] {
				wrong = append(wrong, key(a.Labels))
			}
		}
		if len(got) != len(cases) {
			wrong = append(wrong, "some are missing")
		}
	}
	for _, w := range wrong {
		t.Errorf("%s: want inhibited=%t", w, want[w])
	}
}
