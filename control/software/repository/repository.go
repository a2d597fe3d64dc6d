// Package repository is the centre's side of sites' software: it serves the signed
// repository to regionals, says what its root of trust is, and signs again and again that
// nothing has changed, before what it signed expires. Software is released by who has the
// offline keys (`muster software add`), which are never here.
//
// It doesn't say which site gets what; cmd/internal/control starts it, and hands Root to
// what renders sites' desired states.
package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
)

// Prefix of the paths that regionals call.
const Prefix = "/software"

// Names of the keys in Options.KeysDir.
const (
	TimestampKey = "timestamp.pem"
	SnapshotKey  = "snapshot.pem"
)

const (
	// lookEvery is how often the repository is read: what was released gets to sites so
	// soon.
	lookEvery = 20 * time.Second
	// renewBefore the first of timestamp and snapshot ends, of 7 days: once a day, so that
	// somebody has six days to mend what keeps it from being renewed.
	renewBefore = 6 * 24 * time.Hour
)

// Options of Open. Neither Dir nor Bucket: there is no repository.
type Options struct {
	Dir    string
	Bucket *bucket.Bucket
	// CacheDir and CacheBytes are what is kept of a bucket, over restarts as well.
	CacheDir   string
	CacheBytes int64
	// KeysDir has TimestampKey and SnapshotKey, which are read when they are needed. Without
	// them nothing is renewed.
	KeysDir string

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Repository is served. Safe for concurrent use.
type Repository struct {
	o       Options
	store   publish.Store // nil: there is none
	handler http.Handler
	m       *metrics

	mu   sync.Mutex
	at   *publish.Standing // nil: not read yet
	err  error             // of the last look
	sign error             // of the last renewal
}

// Open reads the repository, if there is one already; what is wrong with it is said again
// and again by Run, and ends nothing.
func Open(ctx context.Context, o Options) (*Repository, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Repository{o: o}
	switch {
	case o.Dir != "":
		r.store, r.handler = publish.Dir{Path: o.Dir}, delivery.Serve(o.Dir)
	case o.Bucket != nil:
		cache, err := delivery.NewCache(delivery.CacheOptions{Dir: o.CacheDir, Upstream: o.Bucket, MaxBytes: o.CacheBytes, Log: o.Logger})
		if err != nil {
			return nil, fmt.Errorf("cache of the software repository: %w", err)
		}
		r.store, r.handler = o.Bucket, cache
	default:
		r.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "control has no software repository: set control.software", http.StatusNotFound)
		})
		return r, nil
	}
	r.m = newMetrics(o.Registerer, r)
	r.look(ctx)
	return r, nil
}

// Register mounts it for regionals.
func (r *Repository) Register(mux interface {
	Handle(pattern string, h http.Handler)
}) {
	mux.Handle("GET "+Prefix+"/", http.StripPrefix(Prefix, r.handler))
}

// Root is the newest root metadata, with which sites begin to trust the repository; nil
// while there is none.
func (r *Repository) Root() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil {
		return nil
	}
	return r.at.Root
}

// Run keeps the signatures fresh until ctx ends.
func (r *Repository) Run(ctx context.Context) error {
	for tick := time.NewTicker(lookEvery); ; {
		if r.store != nil {
			r.keep(ctx)
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// keep looks, and signs if it is time.
func (r *Repository) keep(ctx context.Context) {
	at := r.look(ctx)
	if at == nil {
		return
	}
	left := earlier(at.Expires["timestamp"], at.Expires["snapshot"]).Sub(r.o.Now())
	if at.Broken == nil && !at.Waiting && left > renewBefore {
		r.signed(nil)
		return
	}
	keys, err := r.keys()
	if err == nil {
		repo := &publish.Repository{Store: r.store, Keys: keys, Now: r.o.Now}
		if err = repo.CheckKeys(ctx); err == nil {
			err = repo.Renew(ctx)
		}
	}
	if err != nil {
		r.signed(err)
		return
	}
	r.m.renewals.Inc()
	r.signed(nil)
	r.o.Logger.Info("the software repository was signed for another week", "released", at.Waiting)
	r.look(ctx)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// look reads what is there.
func (r *Repository) look(ctx context.Context) *publish.Standing {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at, err := (&publish.Repository{Store: r.store}).Standing(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.at = at
	}
	if err != nil && (r.err == nil || r.err.Error() != err.Error()) {
		if errors.Is(err, fs.ErrNotExist) && r.at == nil {
			r.o.Logger.Warn("there is no software repository yet; make it with `muster software init`", "err", err)
		} else {
			r.o.Logger.Error("the software repository can't be read", "err", err)
		}
	}
	r.err = err
	if err != nil {
		return nil
	}
	return at
}

// signed notes how the last renewal ended, and says a failure once.
func (r *Repository) signed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (r.sign == nil || r.sign.Error() != err.Error()) {
		r.o.Logger.Error("the software repository can't be signed anew; from its expiry on no site installs anything", "err", err, "keys", r.o.KeysDir)
	}
	r.sign = err
}

func (r *Repository) keys() (publish.Keys, error) {
	read := func(name string) ([]signature.Signer, error) {
		path := filepath.Join(r.o.KeysDir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w; `muster software init` makes it, `muster software rotate` a new one", err)
		}
		s, err := publish.ReadKey(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return []signature.Signer{s}, nil
	}
	timestamp, err := read(TimestampKey)
	if err != nil {
		return publish.Keys{}, err
	}
	snapshot, err := read(SnapshotKey)
	return publish.Keys{Timestamp: timestamp, Snapshot: snapshot}, err
}

// Status is for /debug/.
func (r *Repository) Status() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	out := struct {
		Root    int64
		Targets int
		Expires map[string]time.Time
		Broken  string
		Read    string // what is wrong, as Sign
		Sign    string
	}{Read: text(r.err), Sign: text(r.sign)}
	if r.at != nil {
		out.Root, out.Targets, out.Expires, out.Broken = r.at.RootVersion, len(r.at.Targets), r.at.Expires, text(r.at.Broken)
	}
	return out
}
