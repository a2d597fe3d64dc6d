package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/runbooks"
	"muster.dev/muster/internal/spool"
	"muster.dev/muster/internal/testkit/faultdisk"
)

const twoTenants = `
load 15s
  up{tenant="acme", site="paris", job="node"} 0x20
  up{tenant="acme", site="rome", job="node"} 1x20
  up{tenant="rival", site="secret", job="node"} 1x20
  requests_total{tenant="acme", site="paris"} 0+10x20
  requests_total{tenant="rival", site="secret"} 0+99x20
  {"weird name", tenant="rival", site="secret"} 7x20
`

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 15000 }})
}

// hostile are expressions that try to see another tenant's series.
var hostile = []string{
	`up`, `up{tenant="rival"}`, `up{tenant!="acme"}`, `up{tenant=~".*"}`, `up{tenant=~"acme|rival"}`, `{__name__=~".+"}`, `{"__name__"="up","tenant"="rival"}`, `{"up",tenant="rival"}`, `{"weird name"}`,
	`sum(up)`, `sum by (site) (up)`, `count without (tenant) (up)`, `up or up{tenant="rival"}`, `up unless up{tenant="acme"}`, `absent(up{tenant="rival"})`,
	`rate(requests_total[1m])`, `max_over_time(rate(requests_total[1m])[2m:15s])`, `up offset 15s`, `up @ end()`, `label_replace(up, "tenant", "rival", "", "")`,
	`label_join(up, "tenant", "", "site")`, `topk(3, up)`, `count_values("tenant", up)`, `up * on () group_left (site) sum(requests_total)`, `(up)`, `-up`, `vector(scalar(sum(up{tenant="rival"})))`,
	`sort_desc(up)`, `quantile_over_time(0.5, up[1m])`, `group by (tenant, site) (up)`, `up{tenant=""}`, `histogram_quantile(0.9, up)`, `last_over_time(up[5m] @ 60 offset 15s)`,
}

// Whatever the expression says, it sees what it would see if there were no other tenant.
func TestConfine(t *testing.T) {
	both := promqltest.LoadedStorage(t, twoTenants)
	defer both.Close()
	alone := promqltest.LoadedStorage(t, regexp.MustCompile(`(?m)^.*rival.*\n`).ReplaceAllString(twoTenants, ""))
	defer alone.Close()
	engine := newEngine()
	at := time.Unix(150, 0)
	eval := func(q *promqlQuery) string {
		t.Helper()
		res, err := engine.NewInstantQuery(t.Context(), q.on, nil, q.expr, at)
		if err != nil {
			t.Fatalf("%s: %v", q.expr, err)
		}
		defer res.Close()
		r := res.Exec(context.Background())
		if r.Err != nil {
			return "error: " + r.Err.Error()
		}
		lines := strings.Split(r.Value.String(), "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	for _, expr := range hostile {
		confined, err := Confine(expr, "acme")
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		got, want := eval(&promqlQuery{both, confined}), eval(&promqlQuery{alone, confined})
		if got != want {
			t.Errorf("%s → %s\n sees another tenant:\n%s\nwithout that tenant:\n%s", expr, confined, got, want)
		}
	}
	if c, err := Confine(`info(up)`, "acme"); err == nil {
		t.Errorf("info() was let through: %s", c)
	}
	if _, err := Confine("up", `x"} or {a="`); err == nil {
		t.Error("a tenant that is no name was put into an expression")
	}
}

type promqlQuery struct {
	on   storage.Queryable
	expr string
}

// An object from elsewhere, or of an older version, loses the groups that can't be used
// and no other.
func TestCompileLeavesOutGroups(t *testing.T) {
	group := func(name string, labels map[string]string, exprs ...string) v1alpha1.RuleGroup {
		g := v1alpha1.RuleGroup{Name: name, Labels: labels}
		for _, e := range exprs {
			g.Rules = append(g.Rules, v1alpha1.Rule{Record: "a:b", Expr: e})
		}
		return g
	}
	set := region.AlertRuleSet{Name: "old", Spec: v1alpha1.AlertRulesSpec{Groups: []v1alpha1.RuleGroup{
		group("good", nil, "up"),
		group("dear", nil, "up", "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])"),
		group("twice", nil, "up"), group("twice", nil, "up"),
		group("dressed", map[string]string{"tenant": "rival"}, "up"),
		group("looks", nil, "info(up)"),
	}}}
	files, errs := new(Compiler).Compile(Edge, []region.Rules{{Tenant: "acme", Alerts: []region.AlertRuleSet{set}}}, false)
	if len(files) != 1 || len(errs) != 1 || files[0].Tenant != "acme" {
		t.Fatalf("%d files, %v", len(files), errs)
	}
	groups, perrs := rulefmt.Parse(files[0].Content, false, model.UTF8Validation)
	if len(perrs) > 0 || len(groups.Groups) != 2 || groups.Groups[0].Name != "good" || groups.Groups[1].Name != "twice" {
		t.Errorf("%v\n%s", perrs, files[0].Content)
	}
	for _, want := range []string{"spec.groups[1].rules[1].expr", "longer step", "twice: named twice", "spec.groups[4].labels[tenant]", "info"} {
		if !strings.Contains(errs[0].Error(), want) {
			t.Errorf("the error does not say %q: %v", want, errs[0])
		}
	}
}

// A tenant's groups and rules have a number, whatever they cost; the platform's have none.
func TestCompileBoundsTheRulesOfATenant(t *testing.T) {
	set := func(name string, groups, each int) region.AlertRuleSet {
		out := region.AlertRuleSet{Name: name}
		for i := range groups {
			g := v1alpha1.RuleGroup{Name: fmt.Sprint(i)}
			for range each {
				g.Rules = append(g.Rules, v1alpha1.Rule{Record: "a:b", Expr: "1"})
			}
			out.Spec.Groups = append(out.Spec.Groups, g)
		}
		return out
	}
	tenants := []region.Rules{
		{Tenant: "greedy", Alerts: []region.AlertRuleSet{set("a", MaxGroups-10, 1), set("b", 20, 1), set("c", 10, 1), set("d", 1, 1)}},
		{Tenant: "long", Alerts: []region.AlertRuleSet{set("a", 1, MaxRules), set("b", 1, 1)}},
		{Tenant: "muster", Alerts: []region.AlertRuleSet{set("all", MaxGroups+1, 1)}},
		{Tenant: "acme", Alerts: []region.AlertRuleSet{set("a", 1, 1)}},
	}
	files, errs := new(Compiler).Compile(Edge, tenants, false)
	var have, left []string
	for _, f := range files {
		have = append(have, f.Name)
	}
	for _, e := range errs {
		left = append(left, e.Tenant+"/"+e.Name)
		if !strings.Contains(e.Error(), "1000 groups or 10000 rules") {
			t.Error(e)
		}
	}
	if want := []string{"acme/a", "greedy/a", "greedy/c", "long/a", "muster/all"}; !slices.Equal(have, want) {
		t.Errorf("there are %v, want %v", have, want)
	}
	if want := []string{"greedy/b", "greedy/d", "long/b"}; !slices.Equal(left, want) {
		t.Errorf("left out are %v, want %v", left, want)
	}
}

func TestCompile(t *testing.T) {
	rule := func(r v1alpha1.Rule) v1alpha1.AlertRulesSpec {
		return v1alpha1.AlertRulesSpec{Groups: []v1alpha1.RuleGroup{{Name: "g", Rules: []v1alpha1.Rule{r}}}}
	}
	local := rule(v1alpha1.Rule{Alert: "L", Expr: "up"})
	local.Engine = Local
	tenants := []region.Rules{
		{Tenant: "acme", Alerts: []region.AlertRuleSet{
			{Name: "good", Spec: rule(v1alpha1.Rule{Alert: "Down", Expr: "sum by (site) (up == 0)", For: "1m"})},
			{Name: "bad", Spec: rule(v1alpha1.Rule{Alert: "Down", Expr: "up =="})},
			{Name: "sly", Spec: rule(v1alpha1.Rule{Alert: "Down", Expr: "up", Annotations: map[string]string{"a": `{{ query "up" }}`}})},
			{Name: "local", Spec: local},
		}},
		{Tenant: "muster", Alerts: []region.AlertRuleSet{{Name: "all", Spec: rule(v1alpha1.Rule{Alert: "Any", Expr: "up == 0", Labels: map[string]string{"severity": "info"}})}, {Name: "local", Spec: local}}},
	}
	files, errs := new(Compiler).Compile(Edge, tenants, true)
	var names []string
	byName := map[string]*rulefmt.RuleGroups{}
	for _, f := range files {
		names = append(names, f.Name)
		groups, perrs := rulefmt.Parse(f.Content, false, model.UTF8Validation)
		if len(perrs) > 0 {
			t.Fatalf("%s: %v\n%s", f.Name, perrs, f.Content)
		}
		byName[f.Name] = groups
	}
	if want := []string{"acme/good", "muster/all", "muster/shipped-edge"}; !slices.Equal(names, want) {
		t.Fatalf("files %v, want %v", names, want)
	}
	if len(errs) != 2 || errs[0].Name != "bad" || errs[1].Name != "sly" {
		t.Errorf("errors %v", errs)
	}
	good := byName["acme/good"].Groups[0].Rules[0]
	if good.Labels["tenant"] != "acme" || good.Labels["severity"] != DefaultSeverity || !strings.Contains(good.Expr, `tenant="acme"`) || good.For.String() != "1m" {
		t.Errorf("%+v", good)
	}
	all := byName["muster/all"].Groups[0].Rules[0]
	if all.Labels["tenant"] != "" || all.Labels["severity"] != "info" || all.Expr != "up == 0" {
		t.Errorf("%+v", all)
	}
	if files, errs := new(Compiler).Compile(Local, tenants, false); len(files) != 1 || files[0].Name != "muster/local" || len(errs) != 1 {
		t.Errorf("local: %v, %v", files, errs)
	}
}

// Every alert that ships is well formed, says what to do, and has its runbook.
func TestShipped(t *testing.T) {
	// Raised by the alerting role itself.
	used := map[string]bool{"SiteDown": true, "RegionDown": true, "RegionalDown": true, "SiteNeverConnected": true, "Watchdog": true}
	for _, engine := range []string{Edge, Local} {
		groups, errs := rulefmt.Parse(Shipped(engine).Content, false, model.UTF8Validation)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				// Of a tenant's rollouts and resets the platform is told, and the tenant.
				ofTenant := (strings.HasPrefix(r.Alert, "Rollout") || r.Alert == "SiteResetOverdue") && r.Labels["tenant"] == "{{ $labels.tenant }}"
				if used[r.Alert] && !ofTenant {
					t.Errorf("%s is there twice", r.Alert)
				}
				used[r.Alert] = true
				if _, err := promcost.Rule.Parse(r.Expr, promcost.Window{}); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
				if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
					t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
				}
				if (engine == Local) != (r.Labels["tenant"] == "muster" || ofTenant) {
					t.Errorf("%s of %s: tenant label %q", r.Alert, engine, r.Labels["tenant"])
				}
				for _, a := range []string{"summary", "description", "runbook_url"} {
					if r.Annotations[a] == "" {
						t.Errorf("%s has no %s", r.Alert, a)
					}
				}
				if r.Annotations["runbook_url"] != runbooks.URL("", r.Alert) {
					t.Errorf("%s: runbook %s", r.Alert, r.Annotations["runbook_url"])
				}
			}
		}
	}
	for name := range used {
		if text, ok := runbooks.Text(name); !ok || strings.TrimSpace(text) == "" {
			t.Errorf("internal/runbooks/texts has no %s.md", name)
		}
	}
	for _, name := range runbooks.Names() {
		if !used[name] {
			t.Errorf("there is a runbook for %s, which nothing raises", name)
		}
	}
	files, _ := (&Compiler{Console: "https://muster.example.com"}).Compile(Edge, nil, true)
	if want := "runbook_url: https://muster.example.com/runbooks/SiteUnhealthy\n"; len(files) != 1 || !strings.Contains(string(files[0].Content), want) || strings.Contains(string(files[0].Content), "runbook_url: /") {
		t.Errorf("no %q in what the engine gets", want)
	}
	if n, _ := fs.Glob(shipped, "shipped/*"); len(n) != 2 {
		t.Errorf("files %v", n)
	}
}

// firing evaluates the shipped rules of an engine over series, and returns which
// alerts' expressions hold at the end.
func firing(t *testing.T, engine, load string, at time.Duration) map[string][]string {
	t.Helper()
	st := promqltest.LoadedStorage(t, load)
	defer st.Close()
	out := map[string][]string{}
	groups, _ := rulefmt.Parse(Shipped(engine).Content, false, model.UTF8Validation)
	e := newEngine()
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			q, err := e.NewInstantQuery(t.Context(), st, nil, r.Expr, time.Unix(0, 0).Add(at))
			if err != nil {
				t.Fatal(err)
			}
			res := q.Exec(t.Context())
			if res.Err != nil {
				t.Fatalf("%s: %v", r.Alert, res.Err)
			}
			v, err := res.Vector()
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			for _, s := range v {
				out[r.Alert] = append(out[r.Alert], s.Metric.Get("site")+s.Metric.Get("instance"))
			}
			q.Close()
		}
	}
	return out
}

// Each rule holds for what it is about, and not for a site that is well.
func TestShippedRulesHold(t *testing.T) {
	series := func(site string, bad bool) string {
		v := func(well, broken string) string {
			if bad {
				return broken
			}
			return well
		}
		l := fmt.Sprintf(`tenant="acme",site=%q,region="eu"`, site)
		lines := []string{
			`muster_site_connected{` + l + `} 1x120`,
			`muster_site_last_push_timestamp_seconds{` + l + `} ` + v("0+15x120", "0+0x120"),
			`node_netstat_Tcp_RetransSegs{` + l + `} ` + v("0+1x120", "0+20x120"), `node_netstat_Tcp_OutSegs{` + l + `} 0+100x120`,
			`muster_collector_spool_bytes{` + l + `} ` + v("1e6x120", "4e8x120"), `muster_collector_series_refused{` + l + `} ` + v("0x120", "7x120"),
			`muster_collector_spool_sync_errors_total{` + l + `} ` + v("0x120", "0+1x120"),
			`muster_collector_spool_dropped_batches_total{` + l + `,reason="size"} ` + v("0x120", "0+1x120"),
			`up{` + l + `,job="a"} 1x120`, `up{` + l + `,job="b"} ` + v("1x120", "0x120"),
			`muster_site_health_score{` + l + `} ` + v("96x120", "96x100 30x20"),
			`kube_node_status_condition{` + l + `,node="n1",condition="Ready",status="true"} ` + v("1x120", "0x120"),
			`kube_node_status_condition{` + l + `,node="n1",condition="DiskPressure",status="true"} ` + v("0x120", "1x120"),
			`kube_pod_container_status_waiting_reason{` + l + `,namespace="shop",pod="p",reason="CrashLoopBackOff"} ` + v("0x120", "1x120"),
			`kube_pod_status_phase{` + l + `,namespace="shop",pod="p",phase="Pending"} ` + v("0x120", "1x120"),
			`kube_deployment_status_replicas_available{` + l + `,namespace="shop",deployment="d"} ` + v("2x120", "0x120"),
			`kube_deployment_spec_replicas{` + l + `,namespace="shop",deployment="d"} 2x120`,
			`node_filesystem_avail_bytes{` + l + `,node="n1",mountpoint="/",fstype="ext4"} ` + v("50x120", "5x120"), `node_filesystem_size_bytes{` + l + `,node="n1",mountpoint="/",fstype="ext4"} 100x120`,
			`node_filesystem_files_free{` + l + `,node="n1",mountpoint="/",fstype="ext4"} ` + v("50x120", "1x120"), `node_filesystem_files{` + l + `,node="n1",mountpoint="/",fstype="ext4"} 100x120`,
			`node_memory_MemAvailable_bytes{` + l + `,node="n1"} ` + v("50x120", "3x120"), `node_memory_MemTotal_bytes{` + l + `,node="n1"} 100x120`,
			`container_cpu_cfs_throttled_periods_total{` + l + `,namespace="shop",pod="p",container="c"} ` + v("0+1x120", "0+90x120"), `container_cpu_cfs_periods_total{` + l + `,namespace="shop",pod="p",container="c"} 0+100x120`,
			`kubelet_certificate_manager_client_ttl_seconds{` + l + `,node="n1"} ` + v("3e6x120", "8e4x120"),
			`node_timex_offset_seconds{` + l + `,node="n1"} ` + v("0.001x120", "-2.5x120"),
			`cilium_drop_count_total{` + l + `,reason="Policy denied"} ` + v("0x120", "0+600x120"),
		}
		return "  " + strings.Join(lines, "\n  ") + "\n"
	}
	got := firing(t, Edge, "load 15s\n"+series("well", false)+series("broken", true), 120*15*time.Second)
	groups, _ := rulefmt.Parse(Shipped(Edge).Content, false, model.UTF8Validation)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if s := slices.Compact(slices.Sorted(slices.Values(got[r.Alert]))); !slices.Equal(s, []string{"broken"}) {
				t.Errorf("%s holds for %v, want broken alone", r.Alert, s)
			}
		}
	}
	role := func(instance string, bad bool) string {
		v := func(well, broken string) string {
			if bad {
				return broken
			}
			return well
		}
		l := fmt.Sprintf(`instance=%q,job="regional"`, instance)
		lines := []string{`up{` + l + `} ` + v("1x120", "0x120"), `muster_spool_pending_bytes{` + l + `,spool="forward"} ` + v("1x120", "60x120"), `muster_spool_sync_failing{` + l + `,spool="forward"} ` + v("0x120", "1x120"), `muster_spool_disk_full{` + l + `,spool="forward"} ` + v("0x120", "1x120"), `muster_spool_max_bytes{` + l + `,spool="forward"} 100x120`,
			`muster_disk_nearly_full{` + l + `} ` + v("0x120", "1x120"),
			`muster_logs_intake_queue_full{` + l + `} ` + v("0x120", "1x120"), `muster_logs_intake_parked_loads{` + l + `} ` + v("0x120", "3x120"), `muster_logs_dead_letters_total{` + l + `} ` + v("0x120", "0+1x120"),
			`muster_engine_forward_failed_samples_total{` + l + `,engine="edge"} ` + v("0x120", "0+1x120"), `prometheus_rule_evaluation_failures_total{` + l + `,engine="edge",rule_group="g"} ` + v("0x120", "0+1x120"),
			`muster_role_certificate_expiry_timestamp_seconds{` + l + `} ` + v("2592000x120", "100000x120"),
			`muster_software_repository_failing{` + l + `} ` + v("0x120", "1x120"), `muster_software_metadata_expiry_timestamp_seconds{` + l + `,role="targets"} ` + v("2592000x120", "1000000x120"),
			`muster_health_regional_clock_ahead_seconds{` + l + `,regional="two"} ` + v("0x120", "-300x120"), `muster_clock_seconds{` + l + `} ` + v("0+15x120", "600+15x120"),
			`muster_logrules_behind_seconds{` + l + `} ` + v("20x120", "900x120"),
			`muster_logrules_cut_total{` + l + `} ` + v("7x120", "0+1x120"), `muster_logrules_truncated_total{` + l + `} 0x120`,
			`prometheus_notifications_dropped_total{` + l + `,engine="edge"} ` + v("0x120", "0+1x120"),
			`muster_site_reset_begun_timestamp_seconds{` + l + `,tenant="acme",site="` + instance + `"} ` + v("0x120", "-30000x120"),
			`muster_rollout_progress_timestamp_seconds{` + l + `,tenant="acme",namespace="acme-shop",rollout="stuck"} ` + v("0x120", "-30000x120"), `muster_rollout_phase{` + l + `,tenant="acme",namespace="acme-shop",rollout="stuck",phase="Progressing"} 1x120`,
			`muster_rollout_phase{` + l + `,tenant="acme",namespace="acme-shop",rollout="other",phase="` + v("Completed", "RolledBack") + `"} 1x120`,
			`muster_rollout_progress_timestamp_seconds{` + l + `,tenant="acme",namespace="acme-shop",rollout="other"} -30000x120`,
			`muster_rollout_sites{` + l + `,tenant="acme",namespace="acme-shop",rollout="stuck",step="updated"} ` + v("4x120", "5x120"), `muster_rollout_sites{` + l + `,tenant="acme",namespace="acme-shop",rollout="stuck",step="passed"} 4x120`,
			// All that can be reached have it: those that are offline hold nothing up.
			`muster_rollout_progress_timestamp_seconds{` + l + `,tenant="acme",namespace="acme-shop",rollout="away"} -30000x120`, `muster_rollout_phase{` + l + `,tenant="acme",namespace="acme-shop",rollout="away",phase="Progressing"} ` + v("1x120", "0x120"),
			`muster_rollout_sites{` + l + `,tenant="acme",namespace="acme-shop",rollout="away",step="updated"} 4x120`, `muster_rollout_sites{` + l + `,tenant="acme",namespace="acme-shop",rollout="away",step="passed"} 4x120`, `muster_rollout_sites{` + l + `,tenant="acme",namespace="acme-shop",rollout="away",step="offline"} 3x120`}
		return "  " + strings.Join(lines, "\n  ") + "\n"
	}
	got = firing(t, Local, "load 15s\n"+role("well", false)+role("broken", true)+"  muster_health_last_tick_timestamp_seconds 0x120\n", 120*15*time.Second)
	groups, _ = rulefmt.Parse(Shipped(Local).Content, false, model.UTF8Validation)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			want := []string{"broken"}
			if r.Alert == "MusterHealthStale" {
				want = []string{""}
			}
			if s := slices.Compact(slices.Sorted(slices.Values(got[r.Alert]))); !slices.Equal(s, want) {
				t.Errorf("%s holds for %v, want %v", r.Alert, s, want)
			}
		}
	}
}

// Control that starts anew has nobody told again of what was put back before.
func TestARolloutThatWasPutBackIsToldOnce(t *testing.T) {
	const load = "load 15s\n" + `  muster_rollout_phase{instance="c",tenant="acme",namespace="acme-shop",rollout="web-1",phase="RolledBack"} 1x10 stale`
	for after, want := range map[time.Duration]int{time.Minute: 2, 6 * time.Minute: 0} {
		if told := firing(t, Local, load, 10*15*time.Second+after)["RolloutRolledBack"]; len(told) != want {
			t.Errorf("%s after control was seen last %v are told, want %d: the platform and the tenant", after, told, want)
		}
	}
}

// What a queue says of itself whose disk fails is what the alert looks for, and when the disk
// is well again it is over.
func TestADiskThatDoesNotSyncIsAlerted(t *testing.T) {
	said := func(reg *prometheus.Registry) string {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := "load 15s\n"
		for _, f := range families {
			for _, m := range f.Metric {
				labels := `instance="one"`
				for _, l := range m.Label {
					labels += fmt.Sprintf(",%s=%q", l.GetName(), l.GetValue())
				}
				out += fmt.Sprintf("  %s{%s} %gx8\n", f.GetName(), labels, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
		return out
	}
	var well, failing, healed string
	synctest.Test(t, func(t *testing.T) {
		dir, reg := t.TempDir(), prometheus.NewRegistry()
		disk := faultdisk.New(t, dir)
		s, err := spool.Open(spool.Options{Dir: dir, FS: disk, Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"spool": "forward", "tenant": "acme"}, reg)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Append([]byte("a")); err != nil {
			t.Fatal(err)
		}
		well = said(reg)
		disk.Fail("sync", syscall.EIO)
		if _, err := s.Append([]byte("b")); !errors.Is(err, spool.ErrSync) {
			t.Fatal(err)
		}
		failing = said(reg)
		disk.Fail("sync", nil)
		time.Sleep(time.Minute)
		if _, err := s.Append([]byte("c")); err != nil {
			t.Fatal(err)
		}
		healed = said(reg)
	})
	for _, tc := range []struct {
		load string
		want []string
	}{{well, nil}, {failing, []string{"one"}}, {healed, nil}} {
		if got := firing(t, Local, tc.load, 2*time.Minute)["MusterDiskNotSyncing"]; !slices.Equal(got, tc.want) {
			t.Errorf("it holds for %v, want %v:\n%s", got, tc.want, tc.load)
		}
	}
}

func FuzzConfine(f *testing.F) {
	for _, h := range hostile {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		out, err := Confine(expr, "acme")
		if err != nil {
			return
		}
		tree, err := parser.ParseExpr(out)
		if err != nil {
			t.Fatalf("%q → %q: %v", expr, out, err)
		}
		for _, v := range selectors(tree) {
			if !strings.Contains(v.String(), `tenant="acme"`) {
				t.Fatalf("%q → %q", expr, out)
			}
		}
	})
}

// Random combinations of the hostile ones stay confined too.
func TestConfineCombinations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		a, b := hostile[r.IntN(len(hostile))], hostile[r.IntN(len(hostile))]
		expr := fmt.Sprintf("(%s) %s (%s)", a, []string{"or", "and", "unless", "+", "> bool"}[r.IntN(5)], b)
		out, err := Confine(expr, "acme")
		if err != nil {
			continue // such as a scalar where a set is wanted
		}
		tree, err := parser.ParseExpr(out)
		if err != nil {
			t.Fatalf("%s → %s: %v", expr, out, err)
		}
		for _, v := range selectors(tree) {
			if !strings.Contains(v.String(), `tenant="acme"`) {
				t.Fatalf("%s → %s", expr, out)
			}
		}
	}
}
