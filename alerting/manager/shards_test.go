package manager

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/types"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// tenants is a configuration as alerting/routes merges it: a tenant's routes below a
// matcher on it, and the platform's last.
func tenants(receivers string, parts ...string) []byte {
	return []byte(`{route: {receiver: none, group_by: [tenant], group_wait: 10ms, group_interval: 100ms, routes: [` + strings.Join(parts, ", ") + `]},
receivers: [{name: none}, ` + receivers + `]}`)
}

func tenant(name, route string) string {
	return `{matchers: ['tenant="` + name + `"'], receiver: none, continue: true, routes: [` + route + `]}`
}

func webhook(name, url string) string {
	return `{name: ` + name + `, webhook_configs: [{url: "` + url + `"}]}`
}

// tarpit takes what it is sent and answers when it is let go.
type tarpit struct {
	*httptest.Server
	mu            sync.Mutex
	open, most, n int
	cut           int // requests whose sender gave up
	release       chan struct{}
}

func newTarpit(t *testing.T) *tarpit {
	p := &tarpit{release: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&struct{}{}) // or an end of the connection is not seen
		p.mu.Lock()
		p.open++
		p.n++
		p.most = max(p.most, p.open)
		p.mu.Unlock()
		select {
		case <-p.release:
		case <-r.Context().Done():
			p.mu.Lock()
			p.cut++
			p.mu.Unlock()
		}
		p.mu.Lock()
		p.open--
		p.mu.Unlock()
	}))
	t.Cleanup(func() { p.letGo(); p.Close() })
	return p
}

func (p *tarpit) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.release:
	default:
		close(p.release)
	}
}

func (p *tarpit) count() (open, most, n, cut int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.most, p.n, p.cut
}

func post(t *testing.T, c *amclient.Client, tenant string, n int) {
	t.Helper()
	var alerts []wire.Alert
	for i := range n {
		alerts = append(alerts, alert(fmt.Sprint("A", i), "tenant", tenant))
	}
	must(t, c.PostAlerts(t.Context(), alerts))
}

// An alert that a tenant's route takes is listed there, and one that nobody's does once, below the
// first route.
func TestGroupsOfShardsAreThoseOfTheWhole(t *testing.T) {
	hook := newHook(t)
	m, c, _ := start(t, Options{ShardBy: "tenant"})
	must(t, m.SetConfig(tenants(webhook("quick", hook.URL), tenant("good", `{matchers: ['alertname=~"A[01]"'], receiver: quick, group_by: ["..."]}`))))
	post(t, c, "good", 3)
	post(t, c, "other", 2)
	testkit.Eventually(t, "the groups", func() error {
		groups, err := m.Groups(t.Context())
		if err != nil {
			return err
		}
		got := map[string]int{}
		for _, g := range groups {
			got[g.Receiver+" of "+g.Labels["tenant"]] += len(g.Fingerprints)
		}
		if want := map[string]int{"quick of good": 2, "none of good": 1, "none of other": 2}; !maps.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// A tenant with hundreds of receivers that don't answer has a few notifications under
// way, and nobody else's wait for them.
func TestSlowReceiversHoldUpTheirTenantAlone(t *testing.T) {
	slow, quick := newTarpit(t), newHook(t)
	m, c, _ := start(t, Options{ShardBy: "tenant", Slots: 8})
	must(t, m.SetConfig(tenants(webhook("slow", slow.URL)+", "+webhook("quick", quick.URL),
		tenant("evil", `{receiver: slow, group_by: ["..."], continue: true}`), tenant("good", `{receiver: quick, group_by: ["..."]}`))))
	post(t, c, "evil", 600)
	testkit.EventuallyTrue(t, "the hostile tenant's first notifications", func() bool { open, _, _, _ := slow.count(); return open >= 2 })
	post(t, c, "good", 3)
	testkit.EventuallyTrue(t, "the neighbour's", func() bool { return strings.Count(quick.names(), "firing") >= 3 })
	if _, most, _, _ := slow.count(); most != 2 {
		t.Errorf("%d notifications of a receiver at once, want a quarter of 8", most)
	}
	slow.letGo()
	testkit.EventuallyTrue(t, "the rest", func() bool { _, _, n, _ := slow.count(); return n >= 600 })
}

// A provider that never answers holds up what goes to it, and no other receiver of its own
// tenant: the on-call's pager rings though the chat is down.
func TestAReceiverThatNeverAnswersHoldsUpItselfAlone(t *testing.T) {
	dead, quick := newTarpit(t), newHook(t)
	m, c, _ := start(t, Options{ShardBy: "tenant", Slots: 8})
	must(t, m.SetConfig(tenants(webhook("dead", dead.URL)+", "+webhook("quick", quick.URL),
		tenant("acme", `{receiver: dead, group_by: ["..."], continue: true}, {receiver: quick, group_by: ["..."]}`))))
	post(t, c, "acme", 200)
	testkit.EventuallyTrue(t, "all of the receiver that answers", func() bool { return strings.Count(quick.names(), "firing") >= 200 })
	if open, most, _, _ := dead.count(); open == 0 || most != 2 {
		t.Errorf("%d notifications of the dead one under way, %d at most; want a quarter of 8", open, most)
	}
}

// What a tenant changes in its routes ends and repeats nobody else's notifications.
func TestChangesOfOneTenantLeaveOthersAlone(t *testing.T) {
	slow := newTarpit(t)
	m, c, _ := start(t, Options{ShardBy: "tenant"})
	set := func(i int) {
		t.Helper()
		evil := []string{tenant("evil", fmt.Sprintf(`{receiver: r%d}`, i))}
		if i%2 == 0 { // one more before the neighbour
			evil = append(evil, tenant("evil2", fmt.Sprintf(`{receiver: r%d}`, i)))
		}
		must(t, m.SetConfig(tenants(fmt.Sprintf("{name: r%d}, ", i)+webhook("slow", slow.URL), append(evil, tenant("good", `{receiver: slow, group_interval: 5m}`))...)))
	}
	set(0)
	post(t, c, "good", 1)
	testkit.EventuallyTrue(t, "a notification under way", func() bool { open, _, _, _ := slow.count(); return open == 1 })
	for i := range 20 {
		set(i)
	}
	slow.letGo()
	testkit.EventuallyTrue(t, "its end", func() bool { open, _, _, _ := slow.count(); return open == 0 })
	if _, _, n, cut := slow.count(); n != 1 || cut != 0 {
		t.Errorf("%d notifications, of which %d were cut off; want one", n, cut)
	}
	// Its own change does take effect.
	must(t, m.SetConfig(tenants(webhook("slow", slow.URL)+", {name: other}", tenant("good", `{receiver: other}`))))
	post(t, c, "good", 2)
	groups, _, err := m.groups(t.Context(), func(*dispatch.Route) bool { return true }, func(*types.Alert, time.Time) bool { return true })
	must(t, err)
	for _, g := range groups {
		if g.Receiver == "slow" {
			t.Errorf("the former route still has %v", g.Labels)
		}
	}
}

// One tenant's alerts and groups are bounded, and the bounds are no one else's.
func TestOneTenantsAlertsAndGroupsAreBounded(t *testing.T) {
	quick := newHook(t)
	m, c, _ := start(t, Options{ShardBy: "tenant", MaxAlerts: 50, MaxGroups: 20})
	fan := strings.Repeat(`{receiver: none, group_by: ["..."], continue: true}, `, 10)
	must(t, m.SetConfig(tenants(webhook("quick", quick.URL), tenant("evil", fan), tenant("good", `{receiver: quick, group_by: ["..."]}`))))
	post(t, c, "evil", 500)
	post(t, c, "good", 10)
	testkit.EventuallyTrue(t, "the neighbour's", func() bool { return strings.Count(quick.names(), "firing") >= 10 })
	alerts, err := m.Alerts(t.Context())
	must(t, err)
	count := map[string]int{}
	for _, a := range alerts {
		count[a.Labels["tenant"]]++
	}
	if count["evil"] != 50 || count["good"] != 10 {
		t.Errorf("alerts: %v", count)
	}
	groups, _, err := m.groups(t.Context(), func(*dispatch.Route) bool { return true }, func(*types.Alert, time.Time) bool { return true })
	must(t, err)
	clear(count)
	for _, g := range groups {
		count[string(g.Alerts[0].Labels["tenant"])]++
	}
	if count["evil"] > 20+1 || count["good"] < 10 { // one more: the platform's, of what no route of its takes
		t.Errorf("groups: %v", count)
	}
	if n := m.hub.refusals(); n != 450 {
		t.Errorf("%d refused, want 450", n)
	}
	// What has ended makes room, when Alertmanager clears it away.
	var ended []wire.Alert
	for i := range 50 {
		a := alert(fmt.Sprint("A", i), "tenant", "evil")
		a.StartsAt, a.EndsAt = time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
		ended = append(ended, a)
	}
	must(t, c.PostAlerts(t.Context(), ended))
	m.hub.mu.Lock()
	gone := slices.Collect(maps.Values(m.hub.alerts["evil"]))
	m.hub.mu.Unlock()
	for _, a := range gone {
		m.hub.PostDelete(a)
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("New", "tenant", "evil")}))
	if n := m.hub.refusals(); n != 450 {
		t.Errorf("%d refused after others ended", n-450)
	}
}

// The parts do what the whole does: the platform sees all, inhibitions hold within a
// tenant and the platform's across, and a tenant's own hide nothing from the platform.
func TestShardsDoWhatTheWholeDoes(t *testing.T) {
	mine, platform := newHook(t), newHook(t)
	m, c, _ := start(t, Options{ShardBy: "tenant"})
	conf := string(tenants(webhook("mine", mine.URL)+", "+webhook("platform", platform.URL),
		tenant("a", `{receiver: mine, group_by: ["..."]}`), tenant("b", `{receiver: mine, group_by: ["..."]}`), `{receiver: platform, group_by: ["..."]}`))
	conf = strings.TrimSuffix(conf, "}") + `, inhibit_rules: [
{source_matchers: [alertname=Big], target_matchers: [alertname=Small], equal: [tenant]},
{source_matchers: ['alertname="Flood"', 'tenant="muster"'], target_matchers: [alertname=Wet]},
{source_matchers: ['alertname="Hide"', 'tenant="a"'], target_matchers: ['alertname=~".+"', 'alertname!="Hide"', 'tenant="a"'], equal: [tenant]}]}`
	must(t, m.SetConfig([]byte(conf)))
	if got := len(m.current.Load().shards); got != 3 {
		t.Fatalf("%d shards, want a, b and the platform's", got)
	}
	must(t, c.PostAlerts(t.Context(), []wire.Alert{alert("Big", "tenant", "b"), alert("Flood", "tenant", "muster"), alert("Hide", "tenant", "a")}))
	testkit.EventuallyTrue(t, "the sources", func() bool { return len(splitNames(platform.names())) >= 3 })
	must(t, c.PostAlerts(t.Context(), []wire.Alert{
		alert("Small", "tenant", "b"), alert("Wet", "tenant", "b"), alert("Other", "tenant", "b"),
		alert("Other", "tenant", "a"), alert("Small", "tenant", "c"),
	}))
	testkit.EventuallyTrue(t, "what is not held back", func() bool {
		return len(splitNames(platform.names())) >= 6 && len(splitNames(mine.names())) >= 3
	})
	if got := splitNames(mine.names()); !slices.Equal(got, []string{"Big firing", "Hide firing", "Other firing"}) {
		t.Errorf("the tenants heard %q", got)
	}
	if got := splitNames(platform.names()); !slices.Equal(got, []string{"Big firing", "Flood firing", "Hide firing", "Other firing", "Other firing", "Small firing"}) {
		t.Errorf("the platform heard %q", got)
	}
	alerts, err := m.Alerts(t.Context())
	must(t, err)
	for _, a := range alerts {
		name := a.Labels["alertname"] + " " + a.Labels["tenant"]
		held := slices.Contains([]string{"Small b", "Wet b", "Other a"}, name)
		if held != (a.Status.State == "suppressed") {
			t.Errorf("%s is %s", name, a.Status.State)
		}
	}
}

func splitNames(s string) []string {
	out := strings.Split(s, ", ")
	slices.Sort(out)
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}
