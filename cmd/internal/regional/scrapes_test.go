package regional

import (
	"log/slog"
	"testing"

	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"muster.dev/muster/cmd/internal/config"
)

// Of what control is made of a region keeps sums and counts, of Muster's own all.
func TestLocalScrapes(t *testing.T) {
	c := config.Default()
	parsed, err := promconfig.Load("scrape_configs:\n"+localScrapes(c, c.Regionals[0]), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.ScrapeConfigs) != len(config.Roles) {
		t.Errorf("%d jobs, want one for each of %d roles", len(parsed.ScrapeConfigs), len(config.Roles))
	}
	for _, job := range parsed.ScrapeConfigs {
		for name, want := range map[string]bool{
			"etcd_request_duration_seconds_bucket": false, "apiserver_request_duration_seconds_bucket": false,
			"apiserver_request_duration_seconds_count": true, "apiserver_request_total": true,
			"muster_console_request_duration_seconds_bucket": true, "cortex_request_duration_seconds_bucket": true,
		} {
			if _, keep := relabel.Process(labels.FromStrings("__name__", name), job.MetricRelabelConfigs...); keep != want {
				t.Errorf("job %s: %s is kept: %v, want %v", job.JobName, name, keep, want)
			}
		}
	}
}
