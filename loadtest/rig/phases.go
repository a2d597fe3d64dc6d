package rig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/loadtest/fleetload"
)

// prepare gets what a person would have: a token for sites, one for the console, a
// client of the API server.
func (r *run) prepare(ctx context.Context) error {
	token, err := r.c.run(ctx, "token", "create", "--auto-approve", "--max-uses", "0", "--label", "region=eu", "--token-only")
	if err != nil {
		return err
	}
	hash, err := fleetload.ReadCAHash(r.c.data())
	if err != nil {
		return err
	}
	admin, err := os.ReadFile(filepath.Join(r.c.data(), "admin.token"))
	if err != nil {
		return err
	}
	r.token = strings.TrimSpace(string(admin))
	if r.cfg, err = clientcmd.BuildConfigFromFlags("", filepath.Join(r.c.data(), "admin.kubeconfig")); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	if r.kube, err = client.New(r.cfg, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	r.f, err = fleetload.New(fleetload.Options{
		Sites: r.o.Sites, Series: r.o.Series, Pushes: r.o.Pushes, Interval: r.o.Interval, Churn: r.o.Churn,
		Server: r.c.listens.addr["regionals.listen"], CAHash: hash, Token: token,
		SoftwareBad: r.o.SoftwareBad, SoftwareStep: r.o.SoftwareStep, SoftwareFetches: r.o.Sites,
	})
	return err
}

// registerWidth is how many sites ask for a certificate at once.
const registerWidth = 32

func (r *run) registration(ctx context.Context, _ *Phase) error {
	stop := r.profileSoon(ctx, PhaseRegistration, 0)
	defer stop()
	before := r.c.look()
	began := time.Now()
	if err := r.f.Register(ctx, registerWidth); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %d of %d sites have a certificate: %w", errStalled, r.f.Registered(), r.f.Sites(), err)
		}
		return err
	}
	took := time.Since(began)
	r.row("registrations a second", float64(r.f.Sites())/took.Seconds(), "%.0f")
	r.row("registration, ms of control's CPU a site", ms(r.c.look()["control"].CPU-before["control"].CPU)/float64(r.f.Sites()), "%.1f")
	began = time.Now()
	r.f.Connect(r.pushing)
	if err := r.allConnected(ctx); err != nil {
		return err
	}
	r.row("all streams open, s", time.Since(began).Seconds(), "%.1f")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r *run) allConnected(ctx context.Context) error {
	return until(ctx, "every site's stream and policy", 100*time.Millisecond, func(context.Context) (bool, string, error) {
		up, without := r.f.Connected(), r.f.Policies()[""]
		return up == r.f.Sites() && without == 0, fmt.Sprintf("%d of %d are connected, %d have no policy yet%s", up, r.f.Sites(), without, r.lastError()), nil
	})
}

func (r *run) lastError() string {
	if e := r.f.Tally().Counts().LastError; e != "" {
		return "; the last failure: " + e
	}
	return ""
}

// freshSlack is how much older than an interval the newest sample of a site may be.
const freshSlack = 2 * time.Second

// allFresh waits until every site's newest sample is acknowledged.
func (r *run) allFresh(ctx context.Context) error {
	return until(ctx, "every site's newest samples to be acknowledged", 200*time.Millisecond, func(context.Context) (bool, string, error) {
		// A site's newest sample is up to one interval old just before the next.
		fresh := r.f.Fresh(r.o.Interval + freshSlack)
		c := r.f.Tally().Counts()
		return fresh == r.f.Sites(), fmt.Sprintf("%d of %d sites are there; %d pushes were taken, %d timed out, %d got 429, %d got 5xx%s",
			fresh, r.f.Sites(), c.Pushes, c.Timeouts, c.TooMany, c.Unavailable, r.lastError()), nil
	})
}

// cold lets all series come into being at once.
func (r *run) cold(ctx context.Context, _ *Phase) error {
	stop := r.profileSoon(ctx, PhaseCold, 0)
	defer stop()
	began := time.Now()
	r.f.Push(r.pushing)
	if err := sleepFor(ctx, r.o.Interval); err != nil {
		return err
	}
	if err := r.allFresh(ctx); err != nil {
		return err
	}
	r.row("cold start: all series taken, s", time.Since(began).Seconds(), "%.1f")
	err := until(ctx, "every site to have a score", time.Second, func(ctx context.Context) (bool, string, error) {
		n, err := r.coloured(ctx, fleet.Green, fleet.Orange, fleet.Red)
		if err != nil {
			return false, err.Error(), final(err)
		}
		return n >= r.f.Sites(), fmt.Sprintf("%d of %d", n, r.f.Sites()), nil
	})
	if err == nil {
		r.row("cold start: all sites scored, s", time.Since(began).Seconds(), "%.1f")
	}
	return err
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// profileLength is how long CPU profiles are, at most.
const profileLength = 30 * time.Second

// profileSoon takes profiles of all roles beginning after a wait; stop waits for them.
func (r *run) profileSoon(ctx context.Context, phase string, wait time.Duration) (stop func()) {
	done := make(chan struct{})
	long := min(profileLength, max(r.o.Interval, r.o.Steady/4))
	go func() {
		defer close(done)
		if sleepFor(ctx, wait) == nil {
			if err := r.c.profile(ctx, phase, long); err != nil {
				r.say("profiles: %v", err)
			}
		}
	}()
	return func() { <-done }
}

// listEvery is how often the console's list of sites is asked for in the steady phase.
const listEvery = 5 * time.Second

func (r *run) steady(ctx context.Context, _ *Phase) error {
	regional, err := r.c.metrics(ctx, "regional")
	if err != nil {
		return err
	}
	health, err := r.c.metrics(ctx, "health")
	if err != nil {
		return err
	}
	sctx, cancel := context.WithTimeout(ctx, r.o.Steady)
	defer cancel()
	began := time.Now()
	stop := r.profileSoon(sctx, PhaseSteady, r.o.Steady/4)
	var bytes atomic.Int64
	var lists []time.Duration
	var listErr, streamErr, visitErr error
	var visited *visits
	heapsBefore := r.heaps(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { visited, visitErr = r.visit(sctx, r.o.Visitors) })
	wg.Go(func() { streamErr = r.readStream(sctx, &bytes) })
	wg.Go(func() {
		for sleepFor(sctx, listEvery) == nil {
			at := time.Now()
			if _, err := r.console(sctx, "/api/v1/health/sites?limit=1000"); err == nil {
				lists = append(lists, time.Since(at))
			} else if sctx.Err() == nil {
				listErr = err
			}
		}
	})
	<-sctx.Done()
	wg.Wait()
	stop()
	took := time.Since(began).Seconds()
	if err := ctx.Err(); err != nil {
		return err
	}
	after, err := r.c.metrics(ctx, "regional")
	if err != nil {
		return err
	}
	healthAfter, err := r.c.metrics(ctx, "health")
	if err != nil {
		return err
	}
	alerting, err := r.c.metrics(ctx, "alerting")
	if err != nil {
		return err
	}
	age, err := r.c.forwardAge(ctx)
	if err != nil {
		return err
	}
	r.row("series in the regional", after.sum("prometheus_tsdb_head_series", "engine", "edge"), "%.0f")
	r.row("samples a second, as the gateway counts", (after.sum("muster_gateway_samples_total")-regional.sum("muster_gateway_samples_total"))/took, "%.0f")
	r.row("forward queue's age at the end, s", age, "%.1f")
	r.row("health tick, s", healthAfter.meanSince(health, "muster_health_tick_duration_seconds"), "%.2f")
	r.row("health ticks missed", healthAfter.sum("muster_health_ticks_missed_total")-health.sum("muster_health_ticks_missed_total"), "%.0f")
	r.row("live view, as the dead-man waits for it since the start, ms mean", 1000*alerting.meanSince(nil, "muster_deadman_look_duration_seconds"), "%.0f")
	r.row("live views that did not come in time since the start", alerting.sum("muster_deadman_looks_total", "result", "error"), "%.0f")
	r.row("live views that came", alerting.sum("muster_deadman_looks_total", "result", "ok"), "%.0f")
	r.row("console: list of the first 1,000 sites, ms p50", ms(fleetload.Quantile(lists, 0.5)), "%.0f")
	r.row("console: list of the first 1,000 sites, ms p99", ms(fleetload.Quantile(lists, 0.99)), "%.0f")
	r.row("console: stream to a page, kB/s", float64(bytes.Load())/took/1000, "%.1f")
	if r.o.Visitors > 0 {
		r.row("console: answers to visitors", float64(visited.answers), "%.0f")
		r.row("console: visitors' requests that failed", float64(visited.failed), "%.0f")
	}
	heaps := r.heaps(ctx)
	for _, role := range r.c.listens.roles {
		if heaps[role] > 0 && heapsBefore[role] > 0 {
			r.row(role+": growth of live heap over the steady phase, MB", float64(heaps[role]-heapsBefore[role])/1e6, "%+.1f")
		}
	}
	if visited.first != nil {
		r.say("the first of visitors' requests that failed: %v", visited.first)
	}
	var green int
	if green, err = r.coloured(ctx, fleet.Green); err != nil {
		return err
	}
	r.row("sites that are green", float64(green), "%.0f")
	if listErr != nil {
		return fmt.Errorf("list of sites: %w", listErr)
	}
	return errors.Join(streamErr, visitErr)
}

// heaps are the live heaps of all roles, in bytes, after a collection; a role that does not say
// is not in it.
func (r *run) heaps(ctx context.Context) map[string]int64 {
	out := map[string]int64{}
	for _, role := range r.c.listens.roles {
		if n, err := r.c.liveHeap(ctx, role); err == nil {
			out[role] = n
		}
	}
	return out
}

// console asks the HTTP API as the page does.
func (r *run) console(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return get(ctx, r.c.console()+path, http.Header{"Authorization": {"Bearer " + r.token}})
}

// coloured is how many sites have one of the colours. The console takes one at a time.
func (r *run) coloured(ctx context.Context, colours ...fleet.Colour) (int, error) {
	n := 0
	for _, colour := range colours {
		b, err := r.console(ctx, "/api/v1/health/sites?limit=1&colour="+string(colour))
		if err != nil {
			return 0, err
		}
		var list struct {
			Total int `json:"total"`
		}
		if err := json.Unmarshal(b, &list); err != nil {
			return 0, fmt.Errorf("list of sites: %w", err)
		}
		n += list.Total
	}
	return n, nil
}

// readStream holds the stream that an open page holds, compressed as browsers ask for it, and
// counts its bytes.
func (r *run) readStream(ctx context.Context, n *atomic.Int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.console()+"/api/v1/health/stream?brief=true", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("stream of the console: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("stream of the console: %s", resp.Status)
	}
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadSlice('\n')
		n.Add(int64(len(line)))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("stream of the console: %w", err)
		}
	}
}

// policy edits the collection policy that all sites have.
func (r *run) policy(ctx context.Context, _ *Phase) error {
	stop := r.profileSoon(ctx, PhasePolicy, 0)
	defer stop()
	old := r.f.Policies()
	key := types.NamespacedName{Namespace: fleet.SystemNamespace(tenant), Name: "default"}
	var p v1alpha1.CollectionPolicy
	if err := r.kube.Get(ctx, key, &p); err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	before := p.DeepCopy()
	p.Spec.Allow.Patterns = append(p.Spec.Allow.Patterns, "loadtest_"+strconv.FormatInt(time.Now().Unix(), 36)+"_.*")
	began := time.Now()
	if err := r.kube.Patch(ctx, &p, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("edit the policy: %w", err)
	}
	shown := make(chan error, 1)
	var shownAfter time.Duration
	go func() {
		err := until(ctx, "the policy's status to say that all sites apply it", 250*time.Millisecond, func(ctx context.Context) (bool, string, error) {
			var now v1alpha1.CollectionPolicy
			if err := r.kube.Get(ctx, key, &now); err != nil {
				return false, err.Error(), nil
			}
			c := meta.FindStatusCondition(now.Status.Conditions, "Applied")
			known := c != nil && c.ObservedGeneration >= p.Generation
			return known && int(now.Status.Applied) >= r.f.Sites(), fmt.Sprintf("%d of %d, of this edit: %t", now.Status.Applied, now.Status.Sites, known), nil
		})
		shownAfter = time.Since(began)
		shown <- err
	}()
	err := until(ctx, "every site to apply the policy", 50*time.Millisecond, func(context.Context) (bool, string, error) {
		n := 0
		for hash, sites := range r.f.Policies() {
			if old[hash] == 0 {
				n += sites
			}
		}
		return n == r.f.Sites(), fmt.Sprintf("%d of %d", n, r.f.Sites()), nil
	})
	if err != nil {
		return err
	}
	r.row("policy applied by all, s", time.Since(began).Seconds(), "%.1f")
	if err := <-shown; err != nil {
		return err
	}
	r.row("policy shown as applied by all, s", shownAfter.Seconds(), "%.1f")
	return nil
}

// cut takes the uplinks of a few sites away and waits until they are red.
func (r *run) cut(ctx context.Context, _ *Phase) error {
	red, err := r.coloured(ctx, fleet.Red)
	if err != nil {
		return err
	}
	began := time.Now()
	names := r.f.Cut(max(1, int(r.o.Cut*float64(r.f.Sites()))))
	err = until(ctx, "the sites that were cut to be red", 250*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		n, err := r.coloured(ctx, fleet.Red)
		if err != nil {
			return false, err.Error(), final(err)
		}
		return n >= red+len(names), fmt.Sprintf("%d of %d", n-red, len(names)), nil
	})
	took := time.Since(began)
	began = time.Now()
	r.f.Restore()
	if err != nil {
		return err
	}
	r.row(fmt.Sprintf("cut → red (%d sites), s", len(names)), took.Seconds(), "%.1f")
	if err := r.allConnected(ctx); err != nil {
		return err
	}
	if err := r.allFresh(ctx); err != nil {
		return err
	}
	r.row("restored → all samples of the cut caught up, s", time.Since(began).Seconds(), "%.1f")
	return nil
}

// restart ends the regional, which `muster up` starts again, and waits until all sites
// are back with all that they measured meanwhile.
func (r *run) restart(ctx context.Context, _ *Phase) error {
	old := r.c.pids()["regional"]
	if old == 0 {
		return fmt.Errorf("the regional does not run")
	}
	began := time.Now()
	if err := syscall.Kill(old, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the regional: %w", err)
	}
	err := until(ctx, "the regional to be ready again", 100*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		if pid := r.c.pids()["regional"]; pid == 0 || pid == old {
			return false, "not started yet", nil
		}
		if err := r.c.ready(ctx, "regional"); err != nil {
			return false, err.Error(), nil
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	r.row("regional's restart: ready again, s", time.Since(began).Seconds(), "%.1f")
	stop := r.profileSoon(ctx, PhaseRestart, 0)
	defer stop()
	if err := r.allConnected(ctx); err != nil {
		return err
	}
	r.row("regional's restart: all streams open, s", time.Since(began).Seconds(), "%.1f")
	if err := r.allFresh(ctx); err != nil {
		return err
	}
	r.row("regional's restart: all samples caught up, s", time.Since(began).Seconds(), "%.1f")
	return nil
}
