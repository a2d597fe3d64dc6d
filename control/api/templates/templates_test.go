package templates

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	amtemplate "github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

var (
	rules  = Dialect{Defs: "{{$labels := .Labels}}{{$value := .Value}}", Refused: map[string]string{"query": "it sees all"}}
	routes = Dialect{Template: true}
)

func TestCheck(t *testing.T) {
	doubling := `{{ $x := printf "%100d" 1 }}` + strings.Repeat(`{{ $x = print $x $x }}`, 20) + `{{ $x }}`
	for name, c := range map[string]struct {
		d    Dialect
		text string
		want string // in the error; empty: fine
	}{
		"no template":        {rules, "100% of {it}", ""},
		"labels and value":   {rules, `{{ $labels.site }} has {{ $value | humanize }} of {{ printf "%.2f" .Value }}`, ""},
		"loop over labels":   {rules, `{{ range $k, $v := $labels }}{{ $k }}={{ $v }} {{ end }}`, ""},
		"condition":          {rules, `{{ if gt $value 1.0 }}many{{ else }}one{{ end }}`, ""},
		"replaced":           {rules, `{{ reReplaceAll "-.*" "" $labels.site | toUpper | title }}`, ""},
		"usual title":        {routes, `[{{ .Status | toUpper }}{{ if eq .Status "firing" }}:{{ .Alerts.Firing | len }}{{ end }}] {{ .GroupLabels.SortedPairs.Values | join " " }}`, ""},
		"usual text":         {routes, `{{ range .Alerts }}*{{ .Annotations.summary }}*{{ range .Labels.SortedPairs }} {{ .Name }}={{ .Value }}{{ end }}{{ end }}`, ""},
		"shipped template":   {routes, `{{ template "slack.default.text" . }}`, ""},
		"without some":       {routes, `{{ with .CommonLabels.Remove (stringSlice "site") }}{{ range .Labels.SortedPairs }}x{{ end }}{{ end }}`, ""},
		"series":             {rules, `{{ range query "up" }}{{ end }}`, "range is for labels"},
		"series in a value":  {rules, `{{ with query "up" }}{{ . | first | value }}{{ end }}`, "query is not available"},
		"series in a branch": {rules, `{{ if false }}{{ else }}{{ len (query "up") }}{{ end }}`, "query is not available"},
		"doubling":           {rules, doubling, "could be longer than"},
		"nested":             {rules, `{{ ` + strings.Repeat(`print $value $value | print $value | printf "%s%s%s%s%s%s%s%s" "" "" "" "" | `, 8) + `len }}{{ ` + strings.Repeat("html (js (", 4) + `$value` + strings.Repeat("))", 4) + ` }}`, "could be longer than"},
		"wide":               {rules, `{{ printf "%1000000000d" 1 }}`, "width"},
		"star":               {rules, `{{ printf "%*d" 1000000000 1 }}`, "width"},
		"by number":          {rules, `{{ printf "%[1]s%[1]s" "a" }}`, "by its number"},
		"computed format":    {rules, `{{ printf $labels.x 1 }}`, "in quotes"},
		"piped format":       {rules, `{{ "%9999d" | printf }}`, "in quotes"},
		"number of times":    {rules, `{{ range 1000000000 }}x{{ end }}`, "range is for"},
		"number in variable": {rules, `{{ $n := 1000000000 }}{{ range $n }}x{{ end }}`, "range is for"},
		"number as the dot":  {rules, `{{ with 1000000000 }}{{ range . }}x{{ end }}{{ end }}`, "range is for"},
		"computed number":    {routes, `{{ range (len .Alerts) }}x{{ end }}`, "range is for"},
		"truncated":          {routes, `{{ range .TruncatedAlerts }}x{{ end }}`, "range is for"},
		"growth in a loop":   {rules, `{{ $x := "a" }}{{ range $labels }}{{ $x = print $x $x }}{{ end }}`, "in a loop"},
		"three loops":        {routes, `{{ range .Alerts }}{{ range .Labels }}{{ range .Annotations }}x{{ end }}{{ end }}{{ end }}`, "loops in each other"},
		"alerts of alerts":   {routes, `{{ range .Alerts }}{{ range $.Alerts.Firing }}x{{ end }}{{ end }}`, "loop over alerts"},
		"its own template":   {routes, `{{ define "a" }}x{{ end }}{{ template "a" }}`, "define and block"},
		"itself":             {rules, `{{ template "text" . }}`, "template is not available"},
		"kept and unused":    {rules, strings.TrimSuffix(doubling, `{{ $x }}`), "could be longer than"},
		"kept, replaced":     {routes, `{{ $b := reReplaceAll "" .CommonLabels.a .CommonLabels.a }}`, "could be longer than"},
		"counted":            {routes, `{{ len (reReplaceAll "" .CommonLabels.a .CommonLabels.a) }}`, "could be longer than"},
		"compared":           {rules, `{{ if eq (reReplaceAll "" $labels.a $labels.a) "x" }}x{{ end }}`, "could be longer than"},
		"in a with":          {routes, `{{ with $x := printf "%500d" 1 }}` + strings.Repeat(`{{ with $x = print $x $x }}`, 20) + strings.Repeat(`{{ end }}`, 21), "could be longer than"},
		"replacing all":      {rules, `{{ reReplaceAll "" "` + strings.Repeat("y", 4000) + `" $labels.x }}`, "could be longer than"},
		"pattern of a label": {rules, `{{ reReplaceAll $labels.x "" $labels.y }}`, "in quotes"},
		"dear pattern":       {rules, `{{ if match "(x{30}){20}[a-z]{600}" $labels.y }}x{{ end }}`, "instructions"},
		"bad pattern":        {rules, `{{ if match "(" $labels.y }}x{{ end }}`, "missing closing"},
		"patterns on end":    {rules, strings.Repeat(`{{ if match "(a?){200}b" $labels.y }}x{{ end }}`, 300), "too long"},
		"pattern by a pipe":  {rules, `{{ $labels.site | reReplaceAll "-.*" "" }}`, ""},
		"broken":             {rules, `{{ $nothing }}`, "undefined variable"},
		"too long":           {rules, strings.Repeat("x", MaxBytes+1), "longer than"},
	} {
		err := c.d.Check(c.text)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What Check lets through runs, and in bounds.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{{ .CommonLabels.a }}`, `{{ range .Alerts }}{{ .Labels.site | toUpper }}{{ end }}`, `{{ $x := print .Status .Status }}{{ printf "%q" $x }}`,
		`{{ reReplaceAll "a" "bb" .Status }}`, `{{ range 9 }}x{{ end }}`, `{{ join "," .CommonLabels.Names }}`} {
		f.Add(s)
	}
	tmpl, err := amtemplate.FromGlobs(nil)
	if err != nil {
		f.Fatal(err)
	}
	data := amtemplate.Data{Status: strings.Repeat("firing", 10), CommonLabels: amtemplate.KV{"a": "b"}, Alerts: amtemplate.Alerts{{Labels: amtemplate.KV{"site": "paris"}}}}
	f.Fuzz(func(t *testing.T, s string) {
		if routes.Check(s) != nil {
			return
		}
		if out, err := tmpl.ExecuteTextString(s, data); err == nil && len(out) > MaxResult {
			t.Errorf("%q makes %d bytes", s, len(out))
		}
	})
}

func expand(text string, labels map[string]string, value float64) (string, error) {
	data := template.AlertTemplateData(labels, map[string]string{}, "", promql.Sample{F: value})
	return template.NewTemplateExpander(context.Background(), rules.Defs+text, "t", data, model.Now(), nil, &url.URL{}, nil).Expand()
}

// No run of Prometheus' own templates makes more than its Cost for that very input.
func FuzzCost(f *testing.F) {
	for _, s := range []string{`{{ $labels.a }} {{ $value | humanize }}`, `{{ printf "%q %x" $labels.a $labels }}`, `{{ range $k, $v := $labels }}{{ $k }}{{ $v | toUpper | title }}{{ end }}`,
		`{{ reReplaceAll "" "$0$0" $labels.a }}`, `{{ $value | humanizeTimestamp }}{{ $value | toTime }}{{ now }}`, `{{ html (js $labels.a) }}{{ urlquery $labels.a }}`, `{{ tableLink $labels.a }}{{ graphLink "x" }}`,
		`{{ args $labels.a 1 2 }}`, `{{ eq $labels.a "b" }}{{ len $labels.a }}{{ match "a" $labels.a }}`} {
		f.Add(s, "paris<>&\"'\\", 1e300)
	}
	f.Fuzz(func(t *testing.T, text, value string, v float64) {
		if rules.Check(text) != nil || len(value) > 1000 {
			return
		}
		labels := map[string]string{"a": value, "b": "c"}
		tmpl, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tmpl.Cost(Input{Value: int64(max(512, len(fmt.Sprint(labels)))), Items: 2})
		if err != nil {
			return
		}
		if out, err := expand(text, labels, v); err == nil && int64(len(out)) > c.Bytes {
			t.Errorf("%q makes %d bytes of %q, promised %d: %q", text, len(out), value, c.Bytes, out)
		}
	})
}

// The unit of Cost.Work is about a nanosecond.
func BenchmarkRun(b *testing.B) {
	labels := map[string]string{"a": strings.Repeat("ab", 100), "site": "paris"}
	for name, text := range map[string]string{
		"usual":  `{{ $labels.site }} has {{ $value | humanize }}`,
		"long":   strings.Repeat(`{{ $labels.site }}`, 800),
		"regex":  `{{ reReplaceAll "(a?b?c?){100}x" "" $labels.a }}`,
		"prints": `{{ $x := print $labels.a }}` + strings.Repeat(`{{ $x = print $x $x }}`, 10) + `{{ $x }}`,
	} {
		b.Run(name, func(b *testing.B) {
			tmpl, err := rules.Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			c, err := tmpl.Cost(Input{Value: 512, Items: 2})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := expand(text, labels, 1234); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.Work), "ns/unit")
		})
	}
}
