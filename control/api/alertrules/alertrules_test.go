package alertrules

import (
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

func spec(r v1alpha1.Rule) v1alpha1.AlertRulesSpec {
	return v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "g", Interval: "30s", Rules: []v1alpha1.Rule{r}}}}
}

func TestGood(t *testing.T) {
	for _, r := range []v1alpha1.Rule{
		{Alert: "A", Expr: `up == 0`, For: "5m", KeepFiringFor: "1m", Labels: map[string]string{"severity": "critical", "site": "{{ $labels.site }}"}, Annotations: map[string]string{"summary": `{{ $value | humanize }} at {{ .Labels.site }} {{ with $labels.pod }}{{ . }}{{ end }}`}},
		{Record: "job:up:sum", Expr: `sum by (job) (up)`},
	} {
		if errs := Check(spec(r), "acme"); len(errs) > 0 {
			t.Errorf("%s: %v", r.Expr, errs)
		}
	}
}

func TestBadNamesTheField(t *testing.T) {
	local := spec(v1alpha1.Rule{Alert: "A", Expr: "up"})
	local.Engine = EngineLocal
	badInterval := spec(v1alpha1.Rule{Alert: "A", Expr: "up"})
	badInterval.Groups[0].Interval = "soon"
	groupTenant := spec(v1alpha1.Rule{Alert: "A", Expr: "up"})
	groupTenant.Groups[0].Labels = map[string]string{"tenant": "other"}
	for _, c := range []struct {
		spec v1alpha1.AlertRulesSpec
		want []string
	}{
		{spec(v1alpha1.Rule{Alert: "A", Expr: "up =="}), []string{"spec.groups[0].rules[0].expr"}},
		{spec(v1alpha1.Rule{Alert: "A", Expr: "up", For: "5 minutes"}), []string{"spec.groups[0].rules[0]", "5 minutes"}},
		{spec(v1alpha1.Rule{Alert: "A", Record: "b", Expr: "up"}), []string{"spec.groups[0].rules[0]", "record"}},
		{spec(v1alpha1.Rule{Expr: "up"}), []string{"spec.groups[0].rules[0]"}},
		{spec(v1alpha1.Rule{Record: "b", Expr: "up", For: "1m"}), []string{"spec.groups[0].rules[0]", "for"}},
		{spec(v1alpha1.Rule{Alert: "A", Expr: "up", Annotations: map[string]string{"a": "{{ $labels.x"}}), []string{"spec.groups[0].rules[0]"}},
		{spec(v1alpha1.Rule{Alert: "A", Expr: "up", Labels: map[string]string{"tenant": "other"}}), []string{"labels[tenant]"}},
		{spec(v1alpha1.Rule{Record: "muster_site_connected", Expr: "up"}), []string{"rules[0].record"}},
		{spec(v1alpha1.Rule{Record: "ALERTS", Expr: "up"}), []string{"rules[0].record"}},
		{local, []string{"spec.engine"}},
		{badInterval, []string{"spec.groups[0]", "soon"}},
		{groupTenant, []string{"spec.groups[0].labels[tenant]", "set by Muster"}},
		{spec(v1alpha1.Rule{Alert: "A", Expr: "sum_over_time(sum_over_time(vector(1)[1d:1s])[1d:1s])"}), []string{"spec.groups[0].rules[0].expr", "points", "longer step"}},
		{spec(v1alpha1.Rule{Record: "a", Expr: "x offset 2y"}), []string{"spec.groups[0].rules[0].expr", "92d"}},
	} {
		errs := Check(c.spec, "acme")
		if len(errs) == 0 {
			t.Errorf("%+v was accepted", c.spec.Groups[0].Rules)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(errs.ToAggregate().Error(), w) {
				t.Errorf("%v does not name %s", errs, w)
			}
		}
	}
	if errs := Check(local, "muster"); len(errs) > 0 {
		t.Errorf("operators may not use the local engine: %v", errs)
	}
}

// Templates can ask for series, of all tenants. Every way to write that is refused.
func TestTemplatesMayNotQuery(t *testing.T) {
	for _, text := range []string{
		`{{ query "up" }}`, `{{ range query "up" }}x{{ end }}`, `{{ with query "up" }}x{{ end }}`, `{{ if query "up" }}x{{ end }}`, `{{ "up" | query }}`,
		`{{ (query "up") | first | value }}`, `{{ $x := query "up" }}{{ $x }}`, `{{ define "t" }}{{ query "up" }}{{ end }}{{ template "t" . }}`,
		`{{ template "t" (query "up") }}`, `{{ if true }}{{ else }}{{ query "up" }}{{ end }}`, `{{ block "b" . }}{{ query "up" }}{{ end }}`, `{{ len (query "up") }}`,
		`{{ (query "up").x }}`, `{{ call query "up" }}`, `{{- query "up" -}}`, `{{/* c */}}{{ query "up" }}`, `{{ range $i, $e := query "up" }}{{ else }}{{ break }}{{ end }}`,
	} {
		r := v1alpha1.Rule{Alert: "A", Expr: "up", Annotations: map[string]string{"a": text}}
		if errs := Check(spec(r), "acme"); len(errs) == 0 {
			t.Errorf("annotation %s was accepted", text)
		}
		r.Annotations, r.Labels = nil, map[string]string{"l": text}
		if errs := Check(spec(r), "acme"); len(errs) == 0 {
			t.Errorf("label %s was accepted", text)
		}
		group := spec(v1alpha1.Rule{Alert: "A", Expr: "up"})
		group.Groups[0].Labels = map[string]string{"l": text}
		if errs := Check(group, "acme"); len(errs) == 0 {
			t.Errorf("label %s of a group was accepted", text)
		}
	}
	if errs := Check(spec(v1alpha1.Rule{Alert: "A", Expr: "up", Annotations: map[string]string{"a": `query "up" {{ "query" }}`}}), "acme"); len(errs) > 0 {
		t.Errorf("a text that only says query was refused: %v", errs)
	}
}

func TestIntervalIsBounded(t *testing.T) {
	for interval, ok := range map[string]bool{"": true, "5s": true, "1m": true, "4s": false, "1ms": false} {
		s := spec(v1alpha1.Rule{Alert: "A", Expr: "up"})
		s.Groups[0].Interval = interval
		if errs := Check(s, "acme"); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", interval, errs)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("up", `{{ query "up" }}`, "5m")
	f.Fuzz(func(_ *testing.T, expr, text, dur string) {
		Check(spec(v1alpha1.Rule{Alert: "A", Expr: expr, For: dur, Annotations: map[string]string{"a": text}}), "acme")
	})
}
