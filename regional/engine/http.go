package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/grafana/regexp"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/prometheus/common/version"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/notifications"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/promcost"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// Register mounts the engine below /NAME/: the Prometheus HTTP API with the remote
// write receiver, /-/ready, /-/healthy and /federate. The receiver writes to this
// engine only; nothing of it is forwarded. There is no authentication, so the
// listener must not be open to sites or users.
func (e *Engine) Register(mux obs.Routes, gatherer prometheus.Gatherer) {
	prefix := "/" + e.opts.Name
	router := route.New()
	api := e.api(gatherer)
	api.InstallCodec(vectorCodec{})
	api.Register(router.WithPrefix("/api/v1"))
	mux.Handle(prefix+"/api/v1/", http.StripPrefix(prefix, e.classify(e.rulesAPI(router))))
	mux.HandleFunc("GET "+prefix+"/-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Prometheus Server is Healthy.") })
	mux.HandleFunc("GET "+prefix+"/-/ready", e.whenReady(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Prometheus Server is Ready.") }))
	mux.HandleFunc("GET "+prefix+"/federate", e.whenReady(e.federate))
	mux.HandleFunc("GET "+prefix+"/{$}", e.home)
}

// classify gives health's queries the platform's slots, and refuses selectors that cost
// too much where no expression is evaluated: what is evaluated the guard looks at.
func (e *Engine) classify(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkSelectors(r); err != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "bad_data", "error": err.Error()})
			return
		}
		purpose := r.Header.Get(wire.HeaderPurpose)
		h.ServeHTTP(w, r.WithContext(withClass(r.Context(), class{Class: turns.Class{Platform: purpose == wire.PurposeHealth}})))
	})
}

// checkSelectors looks at match[], and at the query of query_exemplars. What can't be
// parsed the API itself refuses.
func checkSelectors(r *http.Request) error {
	if strings.HasSuffix(r.URL.Path, "/write") || strings.HasSuffix(r.URL.Path, "/read") || r.ParseForm() != nil {
		return nil
	}
	for _, s := range r.Form["match[]"] {
		if ms, err := parser.ParseMetricSelector(s); err == nil {
			if err := promcost.Query.CheckMatchers(ms); err != nil {
				return err
			}
		}
	}
	if strings.HasSuffix(r.URL.Path, "/query_exemplars") {
		var over *promcost.Error
		if _, err := promcost.Query.Parse(r.Form.Get("query"), promcost.Window{}); errors.As(err, &over) {
			return err
		}
	}
	return nil
}

func (e *Engine) whenReady(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := e.Ready(); err != nil {
			http.Error(w, "Service Unavailable: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		h(w, r)
	}
}

func (e *Engine) home(w http.ResponseWriter, _ *http.Request) {
	name := html.EscapeString(e.opts.Name)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><meta charset="utf-8"><title>Prometheus engine %s</title><h1>Prometheus engine %s</h1>
<p>Point Grafana or promtool at this URL without the last slash. <a href="/%s/api/v1/rules">rules</a> · <a href="/%s/api/v1/targets">targets</a> · <a href="/%s/api/v1/status/tsdb">database</a></p>`,
		name, name, name, name, name)
}

func (e *Engine) api(gatherer prometheus.Gatherer) *apiv1.API {
	const (
		readSampleLimit  = 50_000_000
		readConcurrency  = 10
		readBytesInFrame = 1 << 20
	)
	return apiv1.NewAPI(
		e.guard, e.db, e.db, e.db,
		func(context.Context) apiv1.ScrapePoolsRetriever { return e.scraper },
		func(context.Context) apiv1.TargetRetriever { return e.scraper },
		func(context.Context) apiv1.AlertmanagerRetriever { return e.notifier },
		func() config.Config { return e.config },
		map[string]string{"storage.tsdb.path": e.opts.Dir, "web.route-prefix": "/" + e.opts.Name, "web.enable-remote-write-receiver": "true"},
		apiv1.GlobalURLOptions{ListenAddress: "localhost", Host: "localhost", Scheme: "http"},
		e.whenReady,
		dbAdmin{e.db.DB}, e.opts.Dir, false, e.log.With("part", "api"),
		func(ctx context.Context) apiv1.RulesRetriever { return viewOf(ctx, e) },
		readSampleLimit, readConcurrency, readBytesInFrame, false,
		regexp.MustCompile(`^$`), // no cross-origin requests
		e.runtimeInfo,
		&apiv1.PrometheusVersion{Version: prometheusVersion(), Revision: version.Revision, Branch: version.Branch, BuildUser: version.BuildUser, BuildDate: version.BuildDate, GoVersion: runtime.Version()},
		func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, func() {}, false },
		gatherer, e.reg, nil,
		true, remoteapi.MessageTypes{remoteapi.WriteV1MessageType, remoteapi.WriteV2MessageType},
		false, false, false, false,
		5*time.Minute, false, false, nil,
	)
}

// prometheusVersion is the version of the Prometheus packages in this binary.
// Grafana asks for it to know what the API can do.
func prometheusVersion() string {
	const lib = "github.com/prometheus/prometheus"
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, d := range bi.Deps {
			if d.Path == lib {
				// v0.308.1 of the library is Prometheus 3.8.1.
				var major, minor, patch int
				if n, _ := fmt.Sscanf(d.Version, "v%d.%d.%d", &major, &minor, &patch); n == 3 && minor >= 300 {
					return fmt.Sprintf("%d.%d.%d", minor/100, minor%100, patch)
				}
				return d.Version
			}
		}
	}
	return "3.0.0"
}

func (e *Engine) runtimeInfo() (apiv1.RuntimeInfo, error) {
	host, _ := os.Hostname()
	cwd, _ := os.Getwd()
	return apiv1.RuntimeInfo{
		StartTime: e.start, CWD: cwd, Hostname: host, ServerTime: time.Now().UTC(), ReloadConfigSuccess: true, LastConfigTime: e.start,
		GoroutineCount: runtime.NumGoroutine(), GOMAXPROCS: runtime.GOMAXPROCS(0), GOMEMLIMIT: debug.SetMemoryLimit(-1),
		GOGC: os.Getenv("GOGC"), GODEBUG: os.Getenv("GODEBUG"), StorageRetention: model.Duration(e.opts.Retention).String(),
	}, nil
}

// dbAdmin gives the API what it asks of a database beyond queries.
type dbAdmin struct{ *tsdb.DB }

// Stats implements TSDBAdminStats.
func (d dbAdmin) Stats(label string, limit int) (*tsdb.Stats, error) {
	return d.Head().Stats(label, limit), nil
}

// WALReplayStatus implements TSDBAdminStats. The engine is not there before the
// replay is over.
func (d dbAdmin) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }

// BlockMetas implements TSDBAdminStats.
func (d dbAdmin) BlockMetas() ([]tsdb.BlockMeta, error) { return d.DB.BlockMetas(), nil }
