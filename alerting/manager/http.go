package manager

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/ui"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/route"
)

// metrics are those that Alertmanager's own main makes and config.Coordinator, which
// reads files, would make. The names are theirs.
type metrics struct {
	requestDuration                                *prometheus.HistogramVec
	clusterEnabled                                 prometheus.Gauge
	receivers, integrations, inhibitions           prometheus.Gauge
	configHash, configSuccess, configSuccessSecond prometheus.Gauge
	leftOut                                        prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "alertmanager_" + name, Help: help})
	}
	return &metrics{
		requestDuration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "alertmanager_http_request_duration_seconds", Help: "Histogram of latencies for HTTP requests.",
			Buckets: prometheus.DefBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"handler", "method", "code"}),
		clusterEnabled:      gauge("cluster_enabled", "Indicates whether the clustering is enabled or not."),
		receivers:           gauge("receivers", "Number of configured receivers."),
		integrations:        gauge("integrations", "Number of configured integrations."),
		inhibitions:         gauge("inhibition_rules", "Number of configured inhibition rules."),
		configHash:          gauge("config_hash", "Hash of the currently loaded alertmanager configuration. Note that this is not a cryptographically strong hash."),
		configSuccess:       gauge("config_last_reload_successful", "Whether the last configuration reload attempt was successful."),
		configSuccessSecond: gauge("config_last_reload_success_timestamp_seconds", "Timestamp of the last successful configuration reload."),
		leftOut: f.NewCounter(prometheus.CounterOpts{
			Name: "muster_alertmanager_notification_alerts_left_out_total", Help: "Alerts that a notification had no room for, because their group is too large or the receiver's templates make too much of each.",
		}),
	}
}

func (m *metrics) config(p *prepared, yaml []byte) {
	h := fnv.New32a() // 32 bits: a gauge holds them exactly
	_, _ = h.Write(yaml)
	m.configHash.Set(float64(h.Sum32()))
	m.configSuccess.Set(1)
	m.configSuccessSecond.SetToCurrentTime()
	m.receivers.Set(float64(len(p.receivers)))
	m.integrations.Set(float64(p.integrations))
	m.inhibitions.Set(float64(len(p.conf.InhibitRules)))
}

// routes is Alertmanager's own UI and API v2. What its UI package would serve from the
// process (default registry, pprof) is served from what was handed in, or not at all.
func (m *Manager) routes() http.Handler {
	prefix := m.external.Path
	r := route.New()
	if prefix != "" {
		r.Get("/", func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, prefix, http.StatusFound) })
		r = r.WithPrefix(prefix)
	}
	ui.Register(r, nil, m.log)
	routePrefix := prefix
	if routePrefix == "" {
		routePrefix = "/"
	}
	mux := http.NewServeMux()
	mux.Handle("/", m.durable(m.api.Register(r, routePrefix)))
	mux.Handle(prefix+"/debug/", http.NotFoundHandler())
	figures := http.NotFoundHandler()
	if g, ok := m.opts.Registerer.(prometheus.Gatherer); ok {
		figures = promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true})
	}
	mux.Handle(prefix+"/metrics", figures)
	mux.HandleFunc(prefix+"/-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "OK")
	})
	reload := m.opts.OnReload
	mux.HandleFunc(prefix+"/-/reload", func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "reload with POST", http.StatusMethodNotAllowed)
			return
		}
		if reload == nil {
			return
		}
		if err := reload(); err != nil {
			http.Error(w, fmt.Sprintf("failed to reload config: %s", err), http.StatusInternalServerError)
		}
	})
	return mux
}

// durable answers a change of the silences when it is on disk: whoever silenced an
// alert is not woken by it after a crash.
func (m *Manager) durable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if (req.Method == http.MethodPost || req.Method == http.MethodDelete) && strings.HasPrefix(req.URL.Path, m.external.Path+"/api/v2/silence") {
			w = &afterSaving{ResponseWriter: w, save: m.saveSilences}
		}
		next.ServeHTTP(w, req)
	})
}

// afterSaving saves before a success is told, and tells an error if that fails.
type afterSaving struct {
	http.ResponseWriter
	save   func() (int64, error)
	failed bool
}

func (w *afterSaving) WriteHeader(code int) {
	if code/100 == 2 {
		if _, err := w.save(); err != nil {
			w.failed = true
			http.Error(w.ResponseWriter, fmt.Sprintf("it is in force, but a restart would lose it: %s", err), http.StatusInsufficientStorage)
			return
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *afterSaving) Write(b []byte) (int, error) {
	if w.failed { // the answer was the error
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
