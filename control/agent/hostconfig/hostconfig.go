// Package hostconfig configures the host that the agent runs on, as control says: values of
// the kernel, hugepages, /etc/hosts, who may log in by ssh, and the clock's servers. It
// writes drop-in files, has the host's own programs load them, remembers what was there
// before and puts it back, looks again and again whether all is as it should be, and tells
// what a dry run would change.
//
// The agent hands it the item of internal/hostconfig's kind; muster-edge runs it where the
// site's operator has said so. It decides nothing: what a host shall have comes from
// control, and what may stand there at all from internal/hostconfig.
package hostconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/hostconfig"
)

// Conditions of the site, beside HostConfigurationApplied, which the agent sets.
const (
	// ConditionDrift is True while the host has not what it was given.
	ConditionDrift = "HostConfigurationDrift"
	// ConditionDryRun is True while a dry run would change something.
	ConditionDryRun = "HostConfigurationDryRun"
)

// Agent is what this package needs of *agent.Agent.
type Agent interface {
	SetCondition(typ, status, reason, message string)
	// Connected is nil while the centre can be reached.
	Connected() error
}

// Options of New; Root, Dir and Logger are required.
type Options struct {
	// Root of the host's files, / on a real one.
	Root string
	// Dir is where it remembers what was there before; made if missing.
	Dir string
	// Run starts one of the host's programs and waits for it; its error has what the program
	// said. nil: as a process.
	Run func(ctx context.Context, argv ...string) error
	// Every is how often it looks whether the host still has what it was given; default 1 min.
	Every      time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	FS         disk.FS               // nil: the operating system's
	Now        func() time.Time      // nil: time.Now
}

// Host is safe for concurrent use.
type Host struct {
	*agent.Newest
	o      Options
	drifts prometheus.Counter

	state  state // belongs to Run, and to Restore
	last   string
	linked time.Time // since when this process has seen the centre within reach, of a trial
}

// state is what is remembered over restarts, in state.json.
type state struct {
	// Held is what the host was given last with success.
	Held hostconfig.Settings `json:"held"`
	// OnDrift is as in hostconfig.Wanted.
	OnDrift string `json:"onDrift,omitempty"`
	// Files are those that were there before, by path below the root.
	Files map[string]before `json:"files,omitempty"`
	// Values are those that the kernel had before, by path below the root.
	Values map[string]string `json:"values,omitempty"`
	// Trial is what is put back if the centre is out of reach with what is held; nil: it is
	// not.
	Trial *trial `json:"trial,omitempty"`
	// Refused is what was put back for that.
	Refused *refused `json:"refused,omitempty"`
	// Pending are sections whose files were written, and that were not loaded since.
	Pending map[string]bool `json:"pending,omitempty"`
}

// before is a file as it was.
type before struct {
	There bool        `json:"there,omitempty"`
	Mode  fs.FileMode `json:"mode,omitempty"`
	Body  []byte      `json:"body,omitempty"`
}

const (
	stateFile = "state.json"
	// maxBefore is the largest file, in bytes, that is kept to be put back.
	maxBefore  = 1 << 20
	runTimeout = time.Minute
)

// New reads what an earlier process remembered. It changes nothing.
func New(o Options) (*Host, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Run == nil {
		o.Run = run
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Every <= 0 {
		o.Every = time.Minute
	}
	h := &Host{Newest: agent.NewNewest(), o: o,
		drifts: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_host_configuration_drifts_total", Help: "Settings of the host that were found to be others than it was given."})}
	if o.Registerer != nil {
		o.Registerer.MustRegister(h.drifts)
	}
	if err := disk.MkdirAll(o.FS, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("host configuration: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(o.Dir, stateFile))
	if err == nil {
		err = json.Unmarshal(b, &h.state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("host configuration: %s: %w; restore it, or remove it if the host may stay as it is", filepath.Join(o.Dir, stateFile), err)
	}
	return h, nil
}

// run is a process of the host's.
func run(ctx context.Context, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out[:min(len(out), 300)]))
	}
	return nil
}

func (h *Host) save() error {
	b, err := json.Marshal(&h.state)
	if err != nil {
		return fmt.Errorf("remember what was there before: %w", err)
	}
	return atomicfile.WriteTo(h.o.FS, filepath.Join(h.o.Dir, stateFile), b, 0o600)
}

// Run brings the host to what control wants, and keeps it there, until ctx ends. It is
// called once.
func (h *Host) Run(ctx context.Context, a Agent) error {
	wait := time.Duration(0)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for failed := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-h.Changed():
			failed = 0
		case <-timer.C:
		}
		if h.pass(ctx, a) {
			failed, wait = 0, h.o.Every
			if h.state.Trial != nil {
				wait = min(wait, trialEvery)
			}
		} else {
			failed++
			wait = backoff.Bound(failed, time.Second, 10*time.Minute)
		}
		timer.Reset(wait)
	}
}

// pass looks once; false: something failed, and is to be tried again soon.
func (h *Host) pass(ctx context.Context, a Agent) bool {
	set := h.Set()
	wanted := &hostconfig.Wanted{Settings: h.state.Held, OnDrift: h.state.OnDrift}
	var item *agent.SetItem
	switch {
	case set == nil: // control is silent: what it said last counts
	case len(set.Items) == 0:
		wanted = &hostconfig.Wanted{}
	default:
		item = &set.Items[0]
		w, err := h.read(set, item)
		if err != nil {
			set.Applied(item.Name, item.Digest, err)
			h.drift(ctx, a) // what was wanted before stays wanted
			return false
		}
		wanted = w
	}
	if err := ctx.Err(); err != nil {
		return true
	}
	if !h.try(ctx, a) {
		return false
	}
	if same(&wanted.Settings, &h.state.Held) {
		if wanted.OnDrift != h.state.OnDrift {
			h.state.OnDrift = wanted.OnDrift
			if err := h.save(); err != nil {
				h.o.Logger.Warn("host configuration", "err", err)
				return false
			}
		}
		ok := h.drift(ctx, a)
		h.reportDryRun(a, wanted)
		if item != nil {
			h.took(set, item)
		}
		return ok
	}
	if err := h.mayChange(a, &wanted.Settings); err != nil {
		if item != nil {
			set.Applied(item.Name, item.Digest, err)
		}
		h.drift(ctx, a)
		return true
	}
	if err := h.change(ctx, &wanted.Settings, wanted.OnDrift); err != nil {
		if ctx.Err() != nil {
			return true
		}
		h.o.Logger.Warn("the host's configuration can't be applied; it keeps what it had", "err", err)
		if item != nil {
			set.Applied(item.Name, item.Digest, err)
		}
		return false
	}
	h.o.Logger.Info("the host's configuration is applied", "settings", len(h.state.Held.Keys()))
	a.SetCondition(ConditionDrift, "False", "NoDrift", "")
	h.reportDryRun(a, wanted)
	if item != nil {
		h.took(set, item)
	}
	return true
}

// took says, once, that an item is in effect, and once that it is good.
func (h *Host) took(set *agent.Set, item *agent.SetItem) {
	good := h.state.Trial == nil
	last := fmt.Sprint(set.Revision, item.Digest, good)
	if h.last == last {
		return
	}
	h.last = last
	set.Applied(item.Name, item.Digest, nil)
	if good {
		set.Good(item.Name, item.Digest)
	}
}

func (h *Host) read(set *agent.Set, item *agent.SetItem) (*hostconfig.Wanted, error) {
	if item.Err != nil {
		return nil, item.Err
	}
	if len(set.Items) > 1 || item.Name != hostconfig.Name {
		return nil, fmt.Errorf("host configuration: %d items, the first is %q; want one, %s", len(set.Items), item.Name, hostconfig.Name)
	}
	b, err := set.Blob(item.Digest)
	if err != nil {
		return nil, err
	}
	return hostconfig.Decode(b)
}

func same(a, b *hostconfig.Settings) bool {
	return reflect.DeepEqual(a.Keys(), b.Keys()) && slices.Equal(a.SSHAuthorities, b.SSHAuthorities)
}

// change brings the host from what it holds to other settings, or back to what it held.
func (h *Host) change(ctx context.Context, to *hostconfig.Settings, onDrift string) error {
	err := h.apply(ctx, to)
	if err == nil {
		h.begin(to, onDrift)
		return h.save()
	}
	if ctx.Err() != nil {
		return err
	}
	if back := h.apply(ctx, &h.state.Held); back != nil {
		err = fmt.Errorf("%w; and what it had before can't be put back: %w", err, back)
	}
	return err
}

// drift looks whether the host has what it was given; false: it has not, and could not be
// given it again.
func (h *Host) drift(ctx context.Context, a Agent) bool {
	found := h.differs(&h.state.Held)
	if len(found) == 0 {
		h.condition(a, ConditionDrift, "False", "NoDrift", nil)
		return true
	}
	h.drifts.Add(float64(len(found)))
	h.o.Logger.Warn("the host has not what it was given", "changed", strings.Join(found, "; "), "then", h.state.OnDrift)
	if h.state.OnDrift == hostconfig.Report {
		h.condition(a, ConditionDrift, "True", "Drifted", found)
		return true
	}
	if err := h.apply(ctx, &h.state.Held); err != nil {
		h.condition(a, ConditionDrift, "True", "CantHeal", append([]string{err.Error()}, found...))
		return false
	}
	h.condition(a, ConditionDrift, "False", "Healed", found)
	return true
}

// condition sets one of which the lines are cut to what a report may hold. That a drift was
// healed is said until there is another word.
func (h *Host) condition(a Agent, typ, status, reason string, lines []string) {
	if reason == "NoDrift" && same(&h.state.Held, &hostconfig.Settings{}) {
		return // it was given nothing
	}
	a.SetCondition(typ, status, reason, text(lines))
}

// maxText is how long a condition's message is, in bytes.
const maxText = 900

func text(lines []string) string {
	out := ""
	for i, l := range lines {
		if len(out)+len(l) > maxText {
			if out == "" {
				out = strings.ToValidUTF8(l[:maxText], "")
				i++
			}
			if i < len(lines) {
				out += fmt.Sprintf("; and %d more", len(lines)-i)
			}
			break
		}
		if i > 0 {
			out += "; "
		}
		out += l
	}
	return out
}

// reportDryRun says what a dry run would change.
func (h *Host) reportDryRun(a Agent, w *hostconfig.Wanted) {
	if w.Would == nil {
		a.SetCondition(ConditionDryRun, "False", "NoDryRun", "")
		return
	}
	lines := h.differs(w.Would)
	if len(lines) == 0 {
		a.SetCondition(ConditionDryRun, "False", "NothingToChange", "the host has all of it")
		return
	}
	a.SetCondition(ConditionDryRun, "True", "WouldChange", text(append([]string{fmt.Sprintf("%d would change", len(lines))}, lines...)))
}

// Restore puts back all that was there before. It is for a host that is not configured from
// the centre any more; Run must not run.
func (h *Host) Restore(ctx context.Context) error {
	if len(h.state.Files) == 0 && len(h.state.Values) == 0 && same(&h.state.Held, &hostconfig.Settings{}) {
		return nil
	}
	if err := h.apply(ctx, &hostconfig.Settings{}); err != nil {
		return fmt.Errorf("put the host's configuration back: %w", err)
	}
	h.state = state{}
	return h.save()
}
