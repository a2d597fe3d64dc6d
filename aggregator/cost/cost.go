// Package cost tells what sites, virtual sites and tenants take of the regionals: it
// asks all of them, adds up what each says of a site, and names those that did not
// answer. Who is in a virtual site it takes from the inventory.
//
// It authenticates nobody: the header X-Muster-Tenants says what a request may see, so it
// must be mounted on a listener that only the console reaches. Nobody is told of tenants
// beside his own, nor what a regional's process uses in all. cmd/internal/health mounts it
// beside the inventory; the console proxies it.
package cost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
)

// Regional is one that is asked.
type Regional struct {
	Name string
	URL  string // of its query listener, such as http://127.0.0.1:9091
}

// Inventory is what a Server needs of *inventory.Inventory.
type Inventory interface {
	Snapshot() *inventory.Snapshot // nil: not loaded yet
}

// Options of a Server. Regionals and Inventory are needed.
type Options struct {
	Regionals []Regional
	Inventory Inventory
	// Client asks the regionals; nil: one of its own, without a proxy.
	Client *http.Client
	// Timeout bounds one regional's answer; default 5 s.
	Timeout time.Duration
	// MaxAnswerBytes bounds the same; default 64 MiB.
	MaxAnswerBytes int64
	// Fresh is for how long an answer serves who asks next; default 5 s.
	Fresh      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Server serves GET /api/v1/cost and /api/v1/cost/names. Safe for concurrent use.
type Server struct {
	opts   Options
	log    *slog.Logger
	logged *obs.Every
	asked  *prometheus.CounterVec

	mu   sync.Mutex
	last *gathering[wire.RegionalCost] // who comes while it is under way waits for the same answers
}

// New returns a Server that has not asked anybody yet.
func New(o Options) (*Server, error) {
	if len(o.Regionals) == 0 || o.Inventory == nil {
		return nil, errors.New("cost: Regionals and Inventory must be set")
	}
	o.Regionals = slices.Clone(o.Regionals)
	for i := range o.Regionals {
		u, err := url.Parse(o.Regionals[i].URL)
		if err != nil || u.Host == "" || o.Regionals[i].Name == "" {
			return nil, fmt.Errorf("cost: Regionals[%d]: want a name and a URL such as http://127.0.0.1:9091", i)
		}
		o.Regionals[i].URL = strings.TrimRight(o.Regionals[i].URL, "/")
	}
	if o.Client == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy = nil // the regionals are ours
		o.Client = &http.Client{Transport: t}
	}
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	o.Fresh = cmp.Or(max(o.Fresh, 0), 5*time.Second)
	o.MaxAnswerBytes = cmp.Or(max(o.MaxAnswerBytes, 0), 64<<20)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{
		opts: o, log: o.Logger, logged: obs.NewEvery(30 * time.Second),
		asked: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{Name: "muster_cost_fanout_requests_total", Help: "Questions to regionals about what sites cost, by regional and result: ok, failed."}, []string{"regional", "result"}),
	}, nil
}

// Register mounts the API.
func (s *Server) Register(mux obs.Routes) {
	mux.HandleFunc("GET "+wire.CostPath, s.handle(s.cost))
	mux.HandleFunc("GET "+wire.CostNamesPath, s.handle(s.names))
}

// answers are those of all regionals at one moment. They are never changed once made.
type answers struct {
	at      time.Time
	good    []*wire.RegionalCost
	missing []wire.MissingRegion // by name
}

// ask asks all regionals at once, or takes part in what was asked before and is under way or fresh.
func (s *Server) ask(ctx context.Context, patience time.Duration) *answers {
	s.mu.Lock()
	g := s.last
	if g == nil || g.over() && s.opts.Now().Sub(g.at) >= s.opts.Fresh {
		g = gather(ctx, s, func(ctx context.Context, r Regional) (*wire.RegionalCost, error) {
			b, err := s.get(ctx, r.URL+wire.CostPath)
			if err != nil {
				return nil, err
			}
			return decoded(wire.DecodeRegionalCost(b, r.Name))
		})
		s.last = g
	}
	s.mu.Unlock()
	good, missing := g.wait(patience)
	return &answers{at: g.at, good: good, missing: missing}
}

// errAnswer is an answer that is none.
var errAnswer = errors.New("no usable answer")

// reason is what a user is told: the log has the rest, such as addresses.
func (s *Server) reason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", s.opts.Timeout)
	case errors.Is(err, errAnswer):
		return "it gave no usable answer; its version may differ"
	}
	return "it can't be reached"
}

func (s *Server) get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, s.opts.MaxAnswerBytes+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: status %d: %.200s", errAnswer, res.StatusCode, b)
	case int64(len(b)) > s.opts.MaxAnswerBytes:
		return nil, fmt.Errorf("%w: more than %d bytes", errAnswer, s.opts.MaxAnswerBytes)
	}
	return b, nil
}

func decoded[T any](v *T, err error) (*T, error) {
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAnswer, err)
	}
	return v, nil
}

// handle does what both share: the inventory, errors as problems, JSON.
func (s *Server) handle(f func(*http.Request, *inventory.Snapshot) (any, *wire.Problem)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		snap := s.opts.Inventory.Snapshot()
		if snap == nil {
			wire.Failure(http.StatusServiceUnavailable, "the inventory of sites is not loaded yet; try again in a few seconds").Write(w)
			return
		}
		out, p := f(r, snap)
		if p != nil {
			p.Write(w)
			return
		}
		body, err := json.Marshal(out)
		if err != nil {
			s.log.Error("an answer can't be encoded", "path", r.URL.Path, "err", err)
			wire.Failure(http.StatusInternalServerError, "the answer can't be encoded").Write(w)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	}
}

func (s *Server) cost(r *http.Request, snap *inventory.Snapshot) (any, *wire.Problem) {
	q, p := parse(r)
	if p != nil {
		return nil, p
	}
	patience, p := wire.PatienceOf(r)
	if p != nil {
		return nil, p
	}
	return page(s.ask(r.Context(), patience), snap, q), nil
}
