package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/dashboards/grafana/dashboards"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// testDashboards runs the query of every panel against what Grafana would ask: Cortex
// and the first regional's local engine, with the certificate that is for it. A panel
// with nothing in it is a defect, and so is one that counts what it can't see: so a site has of
// everything that panels count.
func testDashboards(t *testing.T, f *fleet) {
	green := greenSites(t, f)
	last := green[len(green)-1] // other parts take the first ones
	for pod, is := range map[string][2]string{"pod/payments-0": {"oom", "0.0001"}, "pod/catalog-0": {"waiting", "ImagePullBackOff"}, "pod/checkout-0": {"waiting", "ContainerCreating"}} {
		fleetCall(t, http.MethodPut, "/faults/"+last+"?"+url.Values{"object": {pod}, "property": {is[0]}, "value": {is[1]}}.Encode())
	}
	defer healSite(t, last)
	at := map[string]string{dashboards.Metrics: cortex + "/prometheus", dashboards.Platform: "https://127.0.0.1:9091/local"}
	vars := map[string]string{"site": "paris", "node": "paris-n1", "virtual_site": "shared/all", "namespace": ".*"}
	all, err := dashboards.All()
	if err != nil {
		t.Fatal(err)
	}
	var left []dashboards.Query
	for _, d := range all {
		queries, err := d.Queries(vars)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, queries...)
	}
	read := func(source, expr string) (r promResult, err error) {
		b, err := f.asRole("reader", at[source]+"/api/v1/query?query="+url.QueryEscape(expr), http.Header{"X-Scope-Orgid": {tenant}})
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err == nil && len(r.Data.Result) == 0 {
			err = errors.New("an empty result")
		}
		return r, err
	}
	ask := func(q dashboards.Query) error {
		r, err := read(q.Source, q.Expr)
		if err != nil {
			return err
		}
		if strings.Contains(q.Expr, "vector(0)") { // which is never empty: what it counts among has to be there
			for _, selector := range selectors(t, q.Expr) {
				if _, err := read(q.Source, "count("+selector+")"); err != nil {
					return fmt.Errorf("%s: %w", selector, err)
				}
			}
		}
		for _, m := range legendLabel.FindAllStringSubmatch(q.Legend, -1) {
			for _, s := range r.Data.Result {
				if s.Metric[m[1]] == "" {
					return fmt.Errorf("the legend names %s, which %v has not", m[1], s.Metric)
				}
			}
		}
		return nil
	}
	testkit.Eventually(t, "every panel has something", func() error {
		var again []dashboards.Query
		var errs []error
		for _, q := range left {
			if err := ask(q); err != nil {
				again, errs = append(again, q), append(errs, fmt.Errorf("%s, %s: %w: %s", q.Dashboard, q.Panel, err, q.Expr))
			}
		}
		left = again
		return errors.Join(errs...)
	})
}

// selectors are what a query reads.
func selectors(t *testing.T, expr string) (out []string) {
	t.Helper()
	e, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s.String())
		}
		return nil
	})
	return out
}

// testLinks: what a site's kernel measures of its link comes back by the console.
func testLinks(t *testing.T, f *fleet) {
	testkit.Eventually(t, "the link of paris has a round trip, loss and requests", func() error {
		var page wire.LinkPage
		if err := f.get("/api/v1/links?q=name%3Dparis&tenant="+tenant, &page); err != nil {
			return err
		}
		if len(page.Links) != 1 || len(page.Notes) > 0 {
			return fmt.Errorf("%d links, notes %v", len(page.Links), page.Notes)
		}
		if l := page.Links[0]; l.Regional == "" || l.RoundTrip == nil || l.Loss == nil || l.Sent == nil || l.Requests == nil || *l.Requests <= 0 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})
}

// testDataSource asks the fleet's console through Grafana's plugin, whose test starts the
// binary as Grafana does, with the data source that the samples provision. It asks for the
// panels that have to have something at this moment: "always", while a site has a "fault", or
// after a "rollout" at a site. Each panel belongs to one of them.
func testDataSource(t *testing.T, f *fleet, moment, site string) {
	t.Helper()
	d := provisioned(t, f)["muster"]
	settings, err := json.Marshal(d.JSONData)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "TestAgainstAConsole$", "./pkg/source")
	cmd.Dir = filepath.Join("..", "dashboards", "grafana", "plugin")
	cmd.Env = append(os.Environ(), "MUSTER_CONSOLE="+d.URL, "MUSTER_TOKEN="+d.SecureJSONData["token"], "MUSTER_SETTINGS="+string(settings), "MUSTER_MOMENT="+moment, "MUSTER_SITE="+site)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s, %s: %v\n%s", moment, site, err, out)
	}
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)
