package collector

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"muster.dev/muster/internal/fleet"
)

// selfJob is the job of the collector's own series. They pass the filter whole.
const selfJob = "muster-edge"

// maxTimeout bounds a scrape; the interval bounds it too.
const maxTimeout = 10 * time.Second

type configInput struct {
	site      fleet.SiteID
	interval  time.Duration
	keep      string // allowlist
	drop      []fleet.SeriesDrop
	requests  []*relabel.Config
	raw       []byte // YAML list of scrape configs
	inProcess *inProcess
}

// buildConfig makes a whole Prometheus configuration out of the scrape configs:
// the policy's interval, the in-process targets, and the allowlist as the last
// relabelling rule of each job. Dropping there is what keeps the memory low: the
// scrape loop remembers a dropped series by its text alone.
func buildConfig(in configInput) (*config.Config, error) {
	var jobs []any
	if err := yaml.Unmarshal(in.raw, &jobs); err != nil {
		return nil, fmt.Errorf("scrape configs: want a list in the form of Prometheus' scrape_configs: %s", oneLine(err))
	}
	for _, job := range in.inProcess.jobs() {
		jobs = append(jobs, job)
	}
	doc, err := yaml.Marshal(map[string]any{
		"global": map[string]any{
			"scrape_interval": model.Duration(in.interval).String(),
			"scrape_timeout":  model.Duration(min(in.interval, maxTimeout)).String(),
			// The offset of the scrapes within the interval follows from these. They
			// are not sent: the regional takes the site from its certificate.
			"external_labels": map[string]string{"tenant": in.site.Tenant, "site": in.site.Name},
		},
		"scrape_configs": jobs,
	})
	if err != nil {
		return nil, fmt.Errorf("scrape configs: %w", err)
	}
	cfg, err := config.Load(string(doc), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("scrape configs: %s", oneLine(err))
	}
	keep, err := relabel.NewRegexp(in.keep)
	if err != nil {
		return nil, fmt.Errorf("allow.patterns: %w", err)
	}
	rule := &relabel.Config{
		SourceLabels: model.LabelNames{model.MetricNameLabel}, Separator: ";", Regex: keep,
		Action: relabel.Keep, Replacement: "$1", NameValidationScheme: model.UTF8Validation,
	}
	drops, err := dropRules(in.drop)
	if err != nil {
		return nil, err
	}
	for _, sc := range cfg.ScrapeConfigs {
		if len(sc.ServiceDiscoveryConfigs) == 0 {
			return nil, fmt.Errorf("scrape configs: job %q: no static_configs, file_sd_configs or kubernetes_sd_configs", sc.JobName)
		}
		// What the scrape manager would find out too late: files that are not there.
		client, err := configutil.NewClientFromConfig(sc.HTTPClientConfig, sc.JobName)
		if err != nil {
			return nil, fmt.Errorf("scrape configs: job %q: %s", sc.JobName, oneLine(err))
		}
		client.CloseIdleConnections()
		if sc.JobName != selfJob {
			sc.MetricRelabelConfigs = slices.Concat(sc.MetricRelabelConfigs, []*relabel.Config{rule}, drops, in.requests)
		}
	}
	return cfg, nil
}

// dropRules drop series that the allowlist lets through, such as those of the network
// interfaces of pods.
func dropRules(drop []fleet.SeriesDrop) ([]*relabel.Config, error) {
	var out []*relabel.Config
	for _, d := range drop {
		re, err := relabel.NewRegexp("(?:" + d.Metric + ");(?:" + d.Values + ")")
		if err != nil {
			return nil, fmt.Errorf("dropSeries: %w", err)
		}
		out = append(out, &relabel.Config{
			SourceLabels: model.LabelNames{model.MetricNameLabel, model.LabelName(d.Label)}, Separator: ";", Regex: re,
			Action: relabel.Drop, Replacement: "$1", NameValidationScheme: model.UTF8Validation,
		})
	}
	return out, nil
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}

func discoveryConfigs(cfg *config.Config) map[string]discovery.Configs {
	out := map[string]discovery.Configs{}
	for _, sc := range cfg.ScrapeConfigs {
		out[sc.JobName] = sc.ServiceDiscoveryConfigs
	}
	return out
}

// Target is scraped in-process: its page never goes over a socket, so that nobody
// else on the host can read it or take its port.
type Target struct {
	Job      string
	Instance string            // default: the job. Targets of one job differ in it
	Labels   map[string]string // further target labels
	Path     string            // default /metrics; the same for all targets of a job
	Handler  http.Handler
}

// jobs are the scrape configs of the in-process targets.
func (p *inProcess) jobs() []map[string]any {
	var out []map[string]any
	at := map[string]int{}
	for _, t := range p.all() {
		i, ok := at[t.Job]
		if !ok {
			i = len(out)
			at[t.Job] = i
			out = append(out, map[string]any{
				"job_name": t.Job, "metrics_path": t.Path, "enable_compression": false, "follow_redirects": false, "static_configs": []any{},
			})
		}
		labels := maps.Clone(t.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels["instance"] = t.Instance
		out[i]["static_configs"] = append(out[i]["static_configs"].([]any), map[string]any{"targets": []string{t.host}, "labels": labels})
	}
	return out
}

// validateTargets checks and completes the in-process targets.
func validateTargets(targets []Target) ([]inProcessTarget, error) {
	var out []inProcessTarget
	seen := map[[2]string]bool{}
	paths := map[string]string{}
	for i, t := range targets {
		if t.Job == "" || t.Handler == nil {
			return nil, fmt.Errorf("target %d: Job and Handler must be set", i)
		}
		if t.Instance == "" {
			t.Instance = t.Job
		}
		if t.Path == "" {
			t.Path = "/metrics"
		}
		if t.Job == selfJob || seen[[2]string{t.Job, t.Instance}] {
			return nil, fmt.Errorf("target %d: instance %q of job %q is taken", i, t.Instance, t.Job)
		}
		if p, ok := paths[t.Job]; ok && p != t.Path {
			return nil, fmt.Errorf("target %d: job %q has the path %s already", i, t.Job, p)
		}
		seen[[2]string{t.Job, t.Instance}], paths[t.Job] = true, t.Path
		out = append(out, inProcessTarget{Target: t, host: fmt.Sprintf("target-%d%s:80", i, inProcessSuffix)})
	}
	return slices.Clip(out), nil
}
