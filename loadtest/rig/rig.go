// Package rig measures what a fleet costs: it starts a whole Muster by `muster up`, on a
// directory and ports of its own, lets the sites of loadtest/fleetload register, push and
// come back, and reads from outside what each process used. Nothing in it is a fake but
// the sites' measurements. The program loadtest/cmd/loadtest runs it (`make loadtest`).
//
// It judges nothing: whether a figure is good is for docs/benchmarks.md to say.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/loadtest/fleetload"
)

// Options of Run. Muster, Dir, Sites and Series are needed.
type Options struct {
	Muster string // path of the binary
	Dir    string // of the run: Muster's data, its log, profiles, the table; must not hold a run yet

	Sites, Series, Pushes int
	Interval              time.Duration
	Churn                 float64       // share of the series that change in a minute
	Steady                time.Duration // how long the steady phase takes
	Visitors              int           // people who look at the console in the steady phase
	Cut                   float64       // share of the sites whose uplink is cut
	SoftwareBad           float64       // share of the sites on which no version of the agent is ever well
	SoftwareStep          time.Duration // as fleetload.Options.SoftwareStep
	Phases                []string      // of Phases, in their order; empty: all
	Deadline              time.Duration // for each phase, beyond the length of the steady one
	GoOn                  bool          // with the next phase after one has stalled
	Keep                  bool          // what Muster stored; the caller removes it otherwise
	NoStore               bool          // what regionals forward is taken and dropped, in place of an embedded Cortex

	Command, Commit string // for the table
	Out             io.Writer
}

// The phases. Every run begins with the registration, and all that come after the cold
// start need it, but for the workloads and the rollouts.
const (
	PhaseRegistration = "registration"
	PhaseCold         = "cold"
	PhaseSteady       = "steady"
	PhasePolicy       = "policy"
	PhaseWorkloads    = "workloads"
	PhaseRollout      = "rollout"
	PhaseSoftware     = "software"
	PhaseCut          = "cut"
	PhaseRestart      = "restart"
)

// Phases in their order.
var Phases = []string{PhaseRegistration, PhaseCold, PhaseSteady, PhasePolicy, PhaseWorkloads, PhaseRollout, PhaseSoftware, PhaseCut, PhaseRestart}

// Phase is what one phase came to.
type Phase struct {
	Name    string             `json:"name"`
	Seconds float64            `json:"seconds"`
	Fleet   fleetload.Counts   `json:"fleet"`
	Use     map[string]RoleUse `json:"use"` // by role; generator: the sites
	// ForwardAge is the largest age of the oldest sample that waited for the store, seconds.
	ForwardAge float64 `json:"forwardAge"`
	// Course is what became of the phase's pushes, second by second.
	Course []Moment `json:"course,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// Row of the table.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text"` // the value as the table shows it
}

// Result is what a run came to.
type Result struct {
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"`
	Command string    `json:"command"`
	Sites   int       `json:"sites"`
	Series  int       `json:"series"`
	Cores   int       `json:"cores"`
	Load    []string  `json:"load"` // of the machine, one minute's average, at the beginning of each phase
	Rows    []Row     `json:"rows"`
	Phases  []Phase   `json:"phases"`
}

// run is a run under way.
type run struct {
	o       Options
	c       *cluster
	f       *fleetload.Fleet
	cfg     *rest.Config // the administrator's
	kube    client.Client
	token   string               // of the console
	shop    kubernetes.Interface // the virtual Kubernetes; nil: not made yet
	res     *Result
	pushing context.Context // until the end of the run
}

// Run runs the phases and returns what they came to, also beside an error: that of the
// phase that stalled. It writes result.json and table.txt below Dir.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	r := &run{o: o, res: &Result{Date: time.Now().UTC().Truncate(time.Second), Commit: o.Commit, Command: o.Command, Sites: o.Sites, Series: o.Series, Cores: runtime.NumCPU()}}
	var err error
	r.say("starting Muster in %s", o.Dir)
	sctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	r.c, err = startCluster(sctx, &o)
	if r.c != nil && r.c.cmd != nil && r.c.cmd.Process != nil {
		defer r.c.stop()
	}
	if err != nil {
		return nil, err
	}
	if err := preferSites(); err != nil {
		r.say("the sites share the processors with Muster, so latencies hold what they wait for themselves: %v; run it as root for better ones", err)
	}
	if err := r.prepare(sctx); err != nil {
		return nil, err
	}
	var stopSites context.CancelFunc
	r.pushing, stopSites = context.WithCancel(ctx)
	defer func() {
		stopSites()
		r.f.Wait()
	}()

	err = r.phases(ctx)
	return r.res, errors.Join(err, r.write())
}

func (o *Options) check() error {
	if _, err := os.Stat(o.Muster); err != nil {
		return fmt.Errorf("--muster: %w; `make build` first", err)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "data")); err == nil {
		return fmt.Errorf("--dir: %s holds a run already; choose another, or remove it", o.Dir)
	}
	for _, p := range o.Phases {
		if !slices.Contains(Phases, p) {
			return fmt.Errorf("--phases: %q: want some of %s", p, strings.Join(Phases, ","))
		}
	}
	if o.Cut < 0 || o.Cut > 1 {
		return fmt.Errorf("--cut: %g: want a share, 0 to 1", o.Cut)
	}
	if o.SoftwareBad < 0 || o.SoftwareBad > 1 {
		return fmt.Errorf("--software-bad: %g: want a share, 0 to 1", o.SoftwareBad)
	}
	if o.Visitors < 0 {
		return fmt.Errorf("--visitors: %d: want a number of people", o.Visitors)
	}
	if o.Steady < 3*o.Interval {
		return fmt.Errorf("--steady: %s: want at least three intervals of %s", o.Steady, o.Interval)
	}
	return nil
}

// runs tells whether a phase is wanted, or one that needs it.
func (o *Options) runs(phase string) bool {
	switch {
	case len(o.Phases) == 0, phase == PhaseRegistration, slices.Contains(o.Phases, phase):
		return true
	case phase == PhaseCold:
		own := []string{PhaseRegistration, PhaseWorkloads, PhaseRollout, PhaseSoftware}
		return slices.ContainsFunc(o.Phases, func(p string) bool { return !slices.Contains(own, p) })
	}
	return false
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.o.Out, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

// phases runs them one after the other. One that stalls ends the run unless GoOn.
func (r *run) phases(ctx context.Context) error {
	all := map[string]func(context.Context, *Phase) error{
		PhaseRegistration: r.registration, PhaseCold: r.cold, PhaseSteady: r.steady, PhasePolicy: r.policy, PhaseWorkloads: r.workloads, PhaseRollout: r.rollout, PhaseSoftware: r.software, PhaseCut: r.cut, PhaseRestart: r.restart,
	}
	var errs []error
	for _, name := range Phases {
		if !r.o.runs(name) {
			continue
		}
		p := &Phase{Name: name}
		limit := r.o.Deadline
		if name == PhaseSteady {
			limit += r.o.Steady
		}
		r.say("phase %s", name)
		r.res.Load = append(r.res.Load, loadAverage())
		r.f.Begin()
		m := startMeter(r.c)
		course := follow(r.f.Tally().Sums, func() int { return r.f.Fresh(r.o.Interval + freshSlack) })
		began := time.Now()
		pctx, cancel := context.WithTimeout(ctx, limit)
		err := all[name](pctx, p)
		cancel()
		p.Seconds = time.Since(began).Seconds()
		p.Use, p.ForwardAge = m.end()
		p.Course = course()
		p.Fleet = r.f.Tally().Counts()
		if err != nil {
			err = fmt.Errorf("phase %s: %w", name, err)
			p.Error = err.Error()
			errs = append(errs, err)
			r.say("%v", err)
		} else {
			r.say("phase %s took %.1f s", name, p.Seconds)
		}
		r.res.Phases = append(r.res.Phases, *p)
		if name == PhaseSteady {
			r.steadyRows(p)
		}
		if ctx.Err() != nil || err != nil && !r.o.GoOn {
			break
		}
	}
	r.phaseRows()
	return errors.Join(errs...)
}

func loadAverage() string {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	return one
}

func (r *run) row(name string, value float64, format string, args ...any) {
	if len(args) == 0 {
		args = []any{value}
	}
	r.res.Rows = append(r.res.Rows, Row{Name: name, Value: value, Text: fmt.Sprintf(format, args...)})
}

// write leaves the result in the run's directory.
func (r *run) write() error {
	b, err := json.MarshalIndent(r.res, "", "  ")
	if err != nil {
		return err
	}
	var table strings.Builder
	r.res.Table(&table)
	return errors.Join(
		os.WriteFile(filepath.Join(r.o.Dir, "result.json"), append(b, '\n'), 0o644),
		os.WriteFile(filepath.Join(r.o.Dir, "table.txt"), []byte(table.String()), 0o644))
}
