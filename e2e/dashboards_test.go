package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
// with nothing in it is a defect.
func testDashboards(t *testing.T, f *fleet) {
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
	missing := maps.Clone(neverInTheDemo)
	ask := func(q dashboards.Query) error {
		r, err := read(q.Source, q.Expr)
		if err != nil {
			return err
		}
		if strings.Contains(q.Expr, "vector(0)") { // which is never empty: what it counts among has to be there
			for _, selector := range selectors(t, q.Expr) {
				delete(missing, selector)
				if _, err := read(q.Source, "count("+selector+")"); err != nil && neverInTheDemo[selector] == "" {
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
	for selector := range missing {
		t.Errorf("no panel reads %s: take it from the list of what is never in the demo", selector)
	}
}

// neverInTheDemo are series that only a fault makes, with which one.
var neverInTheDemo = map[string]string{
	`kube_pod_container_status_last_terminated_reason{namespace=~".*",reason="OOMKilled"}`:                                                 "no container has run out of memory yet",
	`kube_pod_container_status_waiting_reason{namespace=~".*",reason=~"ContainerCreating|PodInitializing"}`:                                "simulated containers are there at once",
	`kube_pod_container_status_waiting_reason{namespace=~".*",reason=~"ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull"}`: "the images of simulated containers are there; those of the shop are told by its virtual Kubernetes",
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
// binary as Grafana does.
func testDataSource(t *testing.T, f *fleet) {
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run", "TestAgainstAConsole$", "./pkg/source")
	cmd.Dir = filepath.Join("..", "dashboards", "grafana", "plugin")
	cmd.Env = append(os.Environ(), "MUSTER_CONSOLE="+console, "MUSTER_TOKEN="+f.token, "MUSTER_TENANT="+tenant)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)
