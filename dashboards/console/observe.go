package console

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// instruments are the console's own metrics.
type instruments struct {
	requests *prometheus.CounterVec   // route, method, code
	latency  *prometheus.HistogramVec // route; streams left out
	streams  prometheus.Gauge
	logins   *prometheus.CounterVec // result: accepted, refused, limited, failed
	reviews  *prometheus.CounterVec // kind: token, access; result: cached, accepted, refused, limited, failed
	panics   prometheus.Counter
	keysGood prometheus.Gauge
}

func newInstruments(reg prometheus.Registerer) *instruments {
	f := promauto.With(reg)
	return &instruments{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_console_requests_total", Help: "Requests answered, by route pattern, method and status code.",
		}, []string{"route", "method", "code"}),
		latency: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_console_request_duration_seconds", Help: "Time to answer a request, streams left out.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
		streams: f.NewGauge(prometheus.GaugeOpts{Name: "muster_console_streams", Help: "Open event streams."}),
		logins: f.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_console_logins_total", Help: "Attempts to open a session, by result.",
		}, []string{"result"}),
		reviews: f.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_console_reviews_total", Help: "Questions to the API server about tokens and access, by result.",
		}, []string{"kind", "result"}),
		keysGood: f.NewGauge(prometheus.GaugeOpts{
			Name: "muster_console_session_keys_last_reload_successful", Help: "Whether the session keys could be read the last time.",
		}),
		panics: f.NewCounter(prometheus.CounterOpts{Name: "muster_console_panics_total", Help: "Requests that ended in a panic."}),
	}
}

// recorder remembers what was answered. http.ResponseController reaches the
// original through Unwrap.
type recorder struct {
	http.ResponseWriter
	code  int // 0: nothing sent yet
	bytes int64
}

func (w *recorder) WriteHeader(code int) {
	if w.code == 0 && code >= 200 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// methodLabel keeps invented methods from growing the metrics.
func methodLabel(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions:
		return m
	}
	return "other"
}

// observed counts, times and logs what next answers.
func (c *Console) observed(pattern string, stream bool, next http.Handler) http.Handler {
	latency := c.met.latency.WithLabelValues(pattern)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w}
		defer func() {
			took := time.Since(start)
			code := rec.code
			if code == 0 {
				code = http.StatusOK
			}
			c.met.requests.WithLabelValues(pattern, methodLabel(r.Method), strconv.Itoa(code)).Inc()
			if !stream {
				latency.Observe(took.Seconds())
			}
			c.log.Debug("request", "method", r.Method, "route", pattern, "path", r.URL.Path, "code", code,
				"bytes", rec.bytes, "took", took.Round(time.Microsecond), "remote", c.proxies.client(r))
		}()
		next.ServeHTTP(rec, r)
	})
}
