// Package obs lets every role explain itself: a logger, a metrics registry of its
// own, and one operations mux with /metrics, /-/ready, /-/healthy and /debug/.
//
// It keeps no package-level state and never touches Prometheus' default
// registry. Every role in cmd/internal and the edge binary uses it.
package obs

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Version is the released version; set by the linker, "dev" otherwise.
var Version = "dev"

// built is when the released commit was made, RFC 3339; set by the linker.
var built string

// Built is when this software was made; the zero time if that is not known.
func Built() time.Time {
	t, _ := time.Parse(time.RFC3339, built)
	return t
}

// LogOptions chooses how a process logs.
type LogOptions struct {
	Level  string // debug, info, warn, error; default info
	Format string // logfmt (default) or json
}

// NewLogger returns a logger that writes to w.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	var level slog.Level
	if o.Level != "" {
		if err := level.UnmarshalText([]byte(o.Level)); err != nil {
			return nil, fmt.Errorf("log level %q: want debug, info, warn or error", o.Level)
		}
	}
	h := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "", "logfmt":
		return slog.New(slog.NewTextHandler(w, h)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, h)), nil
	default:
		return nil, fmt.Errorf("log format %q: want logfmt or json", o.Format)
	}
}

// NewRegistry returns a registry that already describes the process: Go runtime,
// process and build figures, and muster_role_info{role}.
func NewRegistry(role string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "muster_role_info",
		Help:        "1; tells the role and the version of this process.",
		ConstLabels: prometheus.Labels{"role": role, "version": Version},
	})
	info.Set(1)
	clock := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "muster_clock_seconds",
		Help: "This process' clock, in seconds since 1970. Less the timestamp() of the sample it is how far this clock is ahead of the one that scrapes.",
	}, func() float64 { return float64(time.Now().UnixMilli()) / 1000 })
	reg.MustRegister(info, clock, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	return reg
}

// Ops is the operations side of one role. Safe for concurrent use.
type Ops struct {
	role  string
	start time.Time
	mux   *Mux

	mu     sync.Mutex
	parts  map[string]func() error // nil error: ready
	status map[string]func() any
}

// NewOps returns the mux of a role; the role is ready when each part added with
// Ready says so.
func NewOps(role string, g prometheus.Gatherer) *Ops {
	o := &Ops{role: role, start: time.Now(), mux: &Mux{}, parts: map[string]func() error{}, status: map[string]func() any{}}
	o.mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	o.mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "%s is healthy\n", role) })
	o.mux.HandleFunc("GET /-/ready", o.ready)
	o.mux.HandleFunc("GET /debug/{$}", o.home)
	o.mux.HandleFunc("GET /debug/status", o.statusJSON)
	o.mux.HandleFunc("/debug/pprof/", pprof.Index)
	o.mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	o.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	o.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	o.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return o
}

// Ready adds a condition of readiness: nil when the part is ready, else why not.
func (o *Ops) Ready(part string, check func() error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts[part] = check
}

// Status adds a component to /debug/: a value that marshals to JSON.
func (o *Ops) Status(component string, status func() any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status[component] = status
}

// Routes is where an API mounts itself: a Mux or an http.ServeMux.
type Routes interface {
	Handle(pattern string, h http.Handler)
	HandleFunc(pattern string, f func(http.ResponseWriter, *http.Request))
}

// Mux is an http.ServeMux that knows its patterns.
type Mux struct {
	http.ServeMux
	mu       sync.Mutex
	patterns []string
}

// Handle is that of http.ServeMux.
func (m *Mux) Handle(pattern string, h http.Handler) {
	m.ServeMux.Handle(pattern, h)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.patterns = append(m.patterns, pattern)
}

// HandleFunc is that of http.ServeMux.
func (m *Mux) HandleFunc(pattern string, f func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(f))
}

// Patterns are all that were mounted.
func (m *Mux) Patterns() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.patterns)
}

// Mux is the underlying mux, for a role that serves more on the same listener.
func (o *Ops) Mux() *Mux { return o.mux }

// ServeHTTP implements http.Handler.
func (o *Ops) ServeHTTP(w http.ResponseWriter, r *http.Request) { o.mux.ServeHTTP(w, r) }

// NotReady returns why the role is not ready, a line a part, sorted; empty when it is.
func (o *Ops) NotReady() []string {
	o.mu.Lock()
	parts := maps.Clone(o.parts)
	o.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if err := parts[name](); err != nil {
			out = append(out, name+": "+err.Error())
		}
	}
	return out
}

func (o *Ops) ready(w http.ResponseWriter, _ *http.Request) {
	if why := o.NotReady(); len(why) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, line := range why {
			fmt.Fprintln(w, line)
		}
		return
	}
	fmt.Fprintf(w, "%s is ready\n", o.role)
}

func (o *Ops) components() map[string]any {
	o.mu.Lock()
	status := maps.Clone(o.status)
	o.mu.Unlock()
	out := make(map[string]any, len(status))
	for name, f := range status {
		out[name] = f()
	}
	return out
}

func (o *Ops) statusJSON(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o.components())
}

var homePage = template.Must(template.New("debug").Parse(`<!doctype html><meta charset="utf-8"><title>muster {{.Role}}</title>
<style>body{font:14px system-ui;margin:2rem;max-width:70rem}pre{background:#f4f4f4;padding:1rem;overflow:auto}</style>
<h1>muster {{.Role}}</h1><p>version {{.Version}}, {{.Go}}, up {{.Uptime}}, {{.Goroutines}} goroutines</p>
<p>{{if .NotReady}}<b>not ready:</b> {{range .NotReady}}{{.}}; {{end}}{{else}}ready{{end}}</p>
<p><a href="/metrics">metrics</a> · <a href="/-/ready">ready</a> · <a href="/debug/status">status as JSON</a> · <a href="/debug/pprof/">pprof</a></p>
{{range $name, $json := .Components}}<h2>{{$name}}</h2><pre>{{$json}}</pre>{{end}}`))

func (o *Ops) home(w http.ResponseWriter, _ *http.Request) {
	comps := map[string]string{}
	for name, v := range o.components() {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			b = []byte(err.Error())
		}
		comps[name] = string(b)
	}
	goVersion := runtime.Version()
	if bi, ok := debug.ReadBuildInfo(); ok {
		goVersion = bi.GoVersion
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = homePage.Execute(w, map[string]any{
		"Role": o.role, "Version": Version, "Go": goVersion, "Uptime": time.Since(o.start).Round(time.Second),
		"Goroutines": runtime.NumGoroutine(), "NotReady": o.NotReady(), "Components": comps,
	})
}
