package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

type alert struct {
	Fingerprint  string            `json:"fingerprint"`
	Name         string            `json:"name"`
	Tenant       string            `json:"tenant"`
	Site         string            `json:"site"`
	Region       string            `json:"region"`
	VirtualSites []string          `json:"virtualSites"`
	Severity     string            `json:"severity"`
	State        string            `json:"state"`
	SilencedBy   []string          `json:"silencedBy"`
	Labels       map[string]string `json:"labels"`
	StartsAt     time.Time         `json:"startsAt"`
}

func (f *fleet) alerts(site string) ([]alert, error) {
	var list struct {
		Alerts []alert `json:"alerts"`
	}
	return list.Alerts, f.get("/api/v1/alerts?tenant="+tenant+"&limit=1000&site="+site, &list)
}

// alert returns the alert of that name at the site, or an error that lists the others.
func (f *fleet) alert(site, name string) (alert, error) {
	list, err := f.alerts(site)
	if err != nil {
		return alert{}, err
	}
	var names []string
	for _, a := range list {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return alert{}, fmt.Errorf("no %s at %s; there are %v", name, site, names)
}

type notice struct {
	At       time.Time `json:"at"`
	Status   string    `json:"status"`
	Alert    string    `json:"alert"`
	Site     string    `json:"site"`
	StartsAt time.Time `json:"startsAt"`
}

// notified looks for a notification on the demo's phone.
func notified(since time.Time, status, name, site string) (notice, error) {
	var list []notice
	if err := getJSON("http://127.0.0.1:9105/oncall", nil, &list); err != nil {
		return notice{}, err
	}
	var before []string
	for _, n := range list {
		if n.Alert != name || n.Site != site {
			continue
		}
		if n.At.After(since) && n.Status == status {
			return n, nil
		}
		before = append(before, n.Status+" at "+n.At.Format(time.TimeOnly))
	}
	return notice{}, fmt.Errorf("the phone has not rung for %s of %s (%s) since %s among %d, only before: %v", name, site, status, since.Format(time.TimeOnly), len(list), before)
}

func testAlerts(t *testing.T, f *fleet) {
	green := greenSites(t, f)
	if len(green) < 4 {
		t.Fatalf("only %d green sites", len(green))
	}
	oom, down, short := green[0], green[1], green[2]
	broke := time.Now()
	f.muster("demo", "break", oom, "oom-kills")
	f.muster("demo", "break", down, "uplink-down")
	f.muster("demo", "break", short, "deployment-short")
	for _, c := range []struct{ kind, site, alert string }{
		{"log rule", oom, "OutOfMemoryKill"}, {"dead-man", down, "SiteDown"}, {"metric rule, for: 15s", short, "ShopDeploymentShort"},
	} {
		testkit.EventuallyWithin(t, c.alert+" of "+c.site+" reaches the phone", 2*time.Minute, func() error {
			_, err := notified(broke, "firing", c.alert, c.site)
			return err
		})
		t.Logf("figure: fault → notification, %s (%s): %s", c.alert, c.kind, time.Since(broke).Round(time.Second))
		var a alert
		// The index asks Alertmanager every two seconds.
		testkit.Eventually(t, c.alert+" of "+c.site+" is listed", func() (err error) {
			a, err = f.alert(c.site, c.alert)
			return err
		})
		if a.Tenant != tenant || a.Region == "" || a.Severity == "" || !slices.Contains(a.VirtualSites, "shared/all") {
			t.Errorf("labels of %s: %+v", c.alert, a)
		}
	}
	testAlertState(t, f, down)
	if out := f.muster("alerts", "--site", down); !strings.Contains(out, "SiteDown") {
		t.Errorf("muster alerts:\n%s", out)
	}
	testSilence(t, f, short)
	healed := time.Now()
	for _, s := range []string{oom, down} {
		f.muster("demo", "heal", s)
	}
	for site, name := range map[string]string{oom: "OutOfMemoryKill", down: "SiteDown"} {
		testkit.EventuallyWithin(t, name+" of "+site+" is resolved on the phone", 4*time.Minute, func() error {
			_, err := notified(healed, "resolved", name, site)
			return err
		})
	}
	testAlertsWithoutCentre(t, f, green[3])
}

func testAlertState(t *testing.T, f *fleet, site string) {
	t.Helper()
	var st struct {
		Firing map[string]int `json:"firing"`
		Sites  int            `json:"sites"`
	}
	if err := f.get("/api/v1/alerts/state?tenant="+tenant+"&site="+site, &st); err != nil || st.Firing["critical"] < 1 || st.Sites != 1 {
		t.Errorf("state of %s: %+v, %v", site, st, err)
	}
	if err := f.get("/api/v1/alerts/state?tenant="+tenant+"&virtualSite=shared/all", &st); err != nil || st.Firing["critical"] < 1 || st.Sites < 3 {
		t.Errorf("state of all: %+v, %v", st, err)
	}
}

// testSilence silences a firing alert, and ends the silence again.
func testSilence(t *testing.T, f *fleet, site string) {
	t.Helper()
	id := strings.TrimSpace(f.muster("silence", "add", "alertname=ShopDeploymentShort", "--site", site, "-d", "1h", "-c", "e2e"))
	testkit.Eventually(t, "the alert is shown as silenced", func() error {
		a, err := f.alert(site, "ShopDeploymentShort")
		if err == nil && (a.State != "suppressed" || !slices.Contains(a.SilencedBy, id)) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	if out := f.muster("silence", "list"); !strings.Contains(out, id) {
		t.Errorf("muster silence list:\n%s", out)
	}
	f.muster("silence", "expire", id)
	testkit.Eventually(t, "the alert is active again", func() error {
		a, err := f.alert(site, "ShopDeploymentShort")
		if err == nil && a.State != "active" {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	// Maintenance does the same by itself.
	f.muster("site", "maintenance", site, "--reason", "e2e", "--for", "1h")
	testkit.Eventually(t, "maintenance silences the site", func() error {
		a, err := f.alert(site, "ShopDeploymentShort")
		if err == nil && a.State != "suppressed" {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	f.muster("site", "maintenance", site, "--end")
	testkit.Eventually(t, "the alert is active after maintenance", func() error {
		a, err := f.alert(site, "ShopDeploymentShort")
		if err == nil && a.State != "active" {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	testWindow(t, f, site)
	// Health counts a missing replica after minutes only: it may just be updated.
	f.muster("demo", "break", site, "disk-full")
	testkit.Eventually(t, "the site has a reason", func() error {
		s, err := f.site(site)
		if err == nil && len(s.Reasons) == 0 {
			err = fmt.Errorf("%s is %s", site, s.Colour)
		}
		return err
	})
	testDataSource(t, f, "fault", site)
	f.muster("demo", "heal", site)
}

// testWindow plans maintenance of a virtual site: while the window is open its members
// are in maintenance and their alerts silenced.
func testWindow(t *testing.T, f *fleet, site string) {
	t.Helper()
	window := "/api/v1/virtualsites/shared/all/maintenance/windows/e2e?tenant=" + tenant
	if err := f.call(http.MethodPut, window, `{"reason": "weekly updates", "start": "`+time.Now().Add(5*time.Second).UTC().Format(time.RFC3339)+`", "duration": "1h"}`); err != nil {
		t.Error(err)
		return
	}
	inWindow := func(want bool, state string) func() error {
		return func() error {
			s, err := f.site(site)
			if err != nil {
				return err
			}
			if (s.Maintenance != nil && s.Maintenance.Reason == "weekly updates") != want {
				return fmt.Errorf("maintenance of %s: %+v", site, s.Maintenance)
			}
			a, err := f.alert(site, "ShopDeploymentShort")
			if err == nil && a.State != state {
				err = fmt.Errorf("%+v", a)
			}
			return err
		}
	}
	testkit.Eventually(t, "the window opens", inWindow(true, "suppressed"))
	if err := f.call(http.MethodDelete, window, ""); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "the window is gone", inWindow(false, "active"))
}

// testAlertsWithoutCentre stops aggregator and control, so that they neither answer
// nor hang up, and breaks a site: alerts go out all the same.
func testAlertsWithoutCentre(t *testing.T, f *fleet, site string) {
	t.Helper()
	roles := f.roles()
	for _, role := range []string{"aggregator", "control"} {
		pid := roles[role]
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	}
	broke := time.Now()
	breakSite(t, site, "deployment-short")
	var n notice
	testkit.EventuallyWithin(t, "the alert reaches the phone while aggregator and control are stopped", 2*time.Minute, func() (err error) {
		n, err = notified(broke, "firing", "ShopDeploymentShort", site)
		return err
	})
	// startsAt is when the rule began to fire: after its `for`.
	late := n.At.Sub(n.StartsAt)
	t.Logf("figure: aggregator and control stopped: fault → notification %s, of which after the `for` time %s", n.At.Sub(broke).Round(100*time.Millisecond), late.Round(100*time.Millisecond))
	missed(t, "the notification after the `for` time", late, 30*time.Second)
	healSite(t, site)
}

// breakSite asks the fleet directly: it needs no central role.
func breakSite(t *testing.T, site, fault string) {
	fleetCall(t, http.MethodPost, "/faults/"+site+"/"+fault)
}
func healSite(t *testing.T, site string) { fleetCall(t, http.MethodDelete, "/faults/"+site) }

func fleetCall(t *testing.T, method, path string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://127.0.0.1:9105"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode >= 300 {
			err = errors.New(resp.Status)
		}
	}
	if err != nil {
		b, _ := json.Marshal(path)
		t.Fatalf("%s %s: %v", method, b, err)
	}
}
