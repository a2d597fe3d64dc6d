package software

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/bundle"
)

// Options of a Machine.
type Options struct {
	Component string // os, agent, platform
	Driver    Driver
	// Path of the file in which it remembers where it stands; with a Store it is there
	// instead, as COMPONENT.state.json.
	Path  string
	Store Store   // nil: none
	FS    disk.FS // nil: the operating system's
	// Fetch returns the path of a file that is what Wanted says, verified; it fetches what
	// it lacks of it and goes on where it was broken off. It tells percent as it goes.
	Fetch func(ctx context.Context, w Wanted, percent func(int)) (path string, err error)
	// Healthy is the site's own judgement of what runs now, asked every few seconds while
	// a new version is on trial; nil: well.
	Healthy func(ctx context.Context) error
	// Linked says why the centre can't be reached, nil: it can. A restart waits for it, so
	// that a site whose line was down before is not put back for it, and a version on trial
	// is not well without it; nil: that does not matter.
	Linked func() error
	// Versions are what runs of the other components, for what a version requires.
	Versions func() map[string]string
	// Hold is how long the site has to be well without a break, 0: 1 minute; Within is by
	// when it has to be, after the boot, 0: 10 minutes.
	Hold, Within time.Duration
	// BeforeBoot is asked before anything stops running, and again right before each boot
	// into the new version: it drains the node and takes the site's lease on restarts
	// (package lease). An error: not now. Going back does not wait for it. AfterTrial gives
	// both back: at each end of a trial, if there is none after all, and when a process
	// finds none to go on with, since an earlier one may have left something.
	BeforeBoot, AfterTrial func(ctx context.Context) error
	Now                    func() time.Time // nil: time.Now
}

// signedWithin is how long after it heard of a version a site waits for what is signed of it:
// control may have to sign it yet, and a regional shows for half a minute what it had.
const signedWithin = 3 * time.Minute

// tries is how often a version that did not come up, or went down on trial, is booted:
// a power cut looks the same. maxStarts is how often the agent may start on one trial.
const (
	tries     = 2
	maxStarts = 5
)

// step is what is to be done next, on disk.
type step string

const (
	idle      step = ""
	fetching  step = "fetch"
	writing   step = "write"
	switching step = "switch"
	booting   step = "boot"
	trying    step = "trial"
	goingBack step = "back"
)

// record is what outlives the process. It is written before what it says is begun.
type record struct {
	Step     step      `json:"step,omitempty"`
	Version  string    `json:"version,omitempty"`
	Retry    int       `json:"retry,omitempty"`
	From     string    `json:"from,omitempty"` // what ran before
	Boot     string    `json:"boot,omitempty"` // in which it was switched
	Attempts int       `json:"attempts,omitempty"`
	Starts   int       `json:"starts,omitempty"` // of the agent, on this trial
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	memory
}

// memory is what of the record outlives a walk.
type memory struct {
	Failed *failure `json:"failed,omitempty"`
	// Before ran before control asked for another version; Last was brought last.
	Before string `json:"before,omitempty"`
	Last   string `json:"last,omitempty"`
	Offer  *offer `json:"offer,omitempty"`
}

type failure struct {
	Version string `json:"version"`
	Retry   int    `json:"retry,omitempty"`
	Message string `json:"message"`
}

// Machine walks. Step is for one caller; Status for any.
type Machine struct {
	o   Options
	rec record
	// Of this process: when the trial began for it, and since when the site is well.
	trialSince, wellSince time.Time
	tidied                bool // what BeforeBoot took, in an earlier process too, is given back
	booted                bool // it was told to boot, and may go down any moment

	mu     sync.Mutex
	status Status
	ask    *choice // of the site's operator, that no Step has taken yet
	may    limits  // of such a choice
}

// New reads where an earlier process, or boot, got to.
func New(o Options) (*Machine, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Hold == 0 {
		o.Hold = time.Minute
	}
	if o.Within == 0 {
		o.Within = 10 * time.Minute
	}
	m := &Machine{o: o}
	b, err := m.load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, disk.MkdirAll(o.FS, filepath.Dir(o.Path), 0o700)
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(b, &m.rec); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it if the site runs what it shall", o.Path, err)
	}
	if m.rec.Step == trying {
		m.rec.Starts++
		return m, m.save()
	}
	return m, nil
}

// Status is where it stands.
func (m *Machine) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

func (m *Machine) setStatus(s Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Component = m.o.Component
	if s.Since = m.status.Since; s.Since.IsZero() || s.Phase != m.status.Phase || s.Wanted != m.status.Wanted {
		s.Since = m.o.Now()
	}
	m.status = s
}

func (m *Machine) save() error {
	b, err := json.Marshal(m.rec)
	if err != nil {
		return err
	}
	if m.o.Store != nil {
		return m.o.Store.Save(m.o.Component+".state.json", b)
	}
	return atomicfile.WriteTo(m.o.FS, m.o.Path, b, 0o600)
}

func (m *Machine) load() ([]byte, error) {
	if m.o.Store != nil {
		return m.o.Store.Load(m.o.Component + ".state.json")
	}
	return os.ReadFile(m.o.Path)
}

// to takes the next step, once it is on disk.
func (m *Machine) to(s step) error {
	was := m.rec
	m.rec.Step = s
	if err := m.save(); err != nil {
		m.rec = was
		return err
	}
	return nil
}

// fail ends the walk; the version is not tried again until somebody asks for it.
func (m *Machine) fail(ctx context.Context, running, message string) error {
	if err := m.afterTrial(ctx); err != nil {
		return err
	}
	m.rec.Failed = &failure{m.rec.Version, m.rec.Retry, message + "; " + running + " runs"}
	m.rec = record{memory: m.rec.memory}
	return m.save()
}

func (m *Machine) afterTrial(ctx context.Context) error {
	if m.o.AfterTrial == nil {
		return nil
	}
	return m.o.AfterTrial(ctx)
}

// Step does the next thing towards what is wanted. The caller calls it again: after an
// error with growing pauses, while moving at once, else every few seconds and when what
// is wanted changes.
func (m *Machine) Step(ctx context.Context, w Wanted) (moving bool, err error) {
	s, err := m.o.Driver.State(ctx)
	if err != nil {
		err = fmt.Errorf("%s: what runs: %w", m.o.Component, err)
		was := m.Status()
		was.Message = err.Error()
		m.setStatus(was)
		return false, err
	}
	before := m.rec.Step
	w = m.resolve(w)
	switch m.rec.Step {
	case idle:
		err = m.begin(ctx, s, w)
	case fetching, writing, switching:
		if w.Unheard {
			break // whether it is still wanted will be said
		}
		if !w.is(&m.rec) || w.Withdrawn != "" { // nothing has happened yet that could not be left
			if err = errors.Join(m.o.Driver.FallBack(ctx), m.afterTrial(ctx)); err == nil {
				m.rec = record{memory: m.rec.memory}
				err = m.save()
			}
			break
		}
		err = m.prepare(ctx, s, w)
	case booting:
		err = m.boot(ctx, s, w)
	case trying:
		err = m.try(ctx, s, w)
	case goingBack:
		err = m.back(ctx, s)
	default:
		err = fmt.Errorf("%s: a step %q that this version does not know", m.o.Path, m.rec.Step)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", m.o.Component, m.rec.Version, err)
	}
	m.describe(s, w, err)
	return err == nil && m.rec.Step != before, err
}

func (m *Machine) begin(ctx context.Context, s State, w Wanted) error {
	if err := m.tidy(ctx); err != nil {
		return err
	}
	if err := m.offer(w, s); err != nil {
		return err
	}
	if !m.judge(s, w).begin {
		return nil
	}
	keep := m.rec.memory
	if keep.Before == "" || keep.Before != w.Version && keep.Before != s.Running && keep.Last != s.Running {
		keep.Before = s.Running // also if somebody installed it by hand since
	}
	m.rec = record{Version: w.Version, Retry: w.Retry, From: s.Running, Since: m.o.Now(), memory: keep}
	// What ran before is often what is wanted back, and still there. So is what a bootloader
	// passed over that read its variables as they had been before. The repository is not
	// asked: the slot was verified against it when it was written, and by now it may have
	// dropped an older version, or be out of reach, which must not keep a site from going
	// back to what it ran well.
	if w.Back || w.Lacks != "" || m.o.Driver.Verify(ctx, w.Version, w.Digest, w.Size) == nil {
		return m.to(switching)
	}
	return m.to(fetching)
}

// tidy gives back, once, what was taken before a boot that does not come yet.
func (m *Machine) tidy(ctx context.Context) error {
	if m.tidied {
		return nil
	}
	if err := m.afterTrial(ctx); err != nil {
		return err
	}
	m.tidied = true
	return nil
}

func (m *Machine) failed(w Wanted) bool {
	f := m.rec.Failed
	return f != nil && f.Version == w.Version && f.Retry == w.Retry
}

func (m *Machine) prepare(ctx context.Context, s State, w Wanted) error {
	switch m.rec.Step {
	case fetching, writing:
		path, err := m.o.Fetch(ctx, w, func(percent int) {
			m.setStatus(Status{Running: s.Running, Wanted: w.Version, Item: w.Item, Phase: Downloading, Percent: percent})
		})
		fresh := errors.Is(err, bundle.ErrAbsent) && m.o.Now().Sub(m.rec.Since) < signedWithin
		if refused := (*bundle.Refused)(nil); errors.As(err, &refused) && !refused.Passes() && !fresh {
			return m.fail(ctx, s.Running, err.Error())
		}
		if err != nil {
			return err
		}
		if m.rec.Step == fetching {
			return m.to(writing)
		}
		if err := m.write(ctx, w, path); err != nil {
			if ctx.Err() == nil && m.rec.Attempts+1 >= 3 {
				return m.fail(ctx, s.Running, err.Error())
			}
			m.rec.Attempts++
			return errors.Join(err, m.save())
		}
		m.rec.Attempts = 0
		return m.to(switching)
	default:
		if err := m.offer(w, s); err != nil {
			return err
		}
		if m.restartAt(w).After(m.o.Now()) {
			return m.tidy(ctx) // other nodes of the site may have their turn meanwhile
		}
		if m.o.Linked != nil {
			if err := m.o.Linked(); err != nil {
				return fmt.Errorf("a new version is tried only while the centre can be reached: %w", err)
			}
		}
		if err := m.beforeBoot(ctx); err != nil {
			return err
		}
		m.rec.Boot, m.booted = s.Boot, false
		return m.to(booting)
	}
}

// restartAt is when what is written may be switched to: the windows are for the restart as
// well, and the one in which the download began may be over. The zero time: it does not
// wait for a restart.
func (m *Machine) restartAt(w Wanted) time.Time {
	if m.rec.Step != switching || w.Unheard || !w.is(&m.rec) {
		return time.Time{}
	}
	return m.start(w)
}

func (m *Machine) write(ctx context.Context, w Wanted, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := m.o.Driver.Write(ctx, w.Version, f, w.Size); err != nil {
		return err
	}
	return m.o.Driver.Verify(ctx, w.Version, w.Digest, w.Size)
}

// describe says it in people's words.
func (m *Machine) describe(s State, w Wanted, err error) {
	out := Status{Running: s.Running, Wanted: w.Version, Item: w.Item}
	if m.rec.Step != idle && !w.is(&m.rec) {
		out.Item = "" // what is wanted by now waits
	}
	if err != nil {
		out.Message = err.Error()
	}
	switch m.rec.Step {
	case idle:
		v := m.judge(s, w)
		out.Phase, out.StartsAt = v.phase, v.startsAt
		if out.Message == "" {
			out.Message = v.message
		}
	case fetching:
		out.Phase, out.Wanted = Downloading, m.rec.Version
		out.Percent = m.Status().Percent
	default:
		if at := m.restartAt(w); at.After(m.o.Now()) {
			out.Phase, out.Wanted, out.StartsAt = Scheduled, m.rec.Version, at
			if out.Message == "" {
				out.Message = "it is written, and the restart is scheduled for " + at.UTC().Format(time.RFC3339)
			}
			break
		}
		out.Phase, out.Wanted = Installing, m.rec.Version
		if out.Message == "" {
			out.Message = map[step]string{writing: "it is written", switching: "it waits for the restart", booting: "it restarts", trying: "it is on trial", goingBack: "it goes back: " + m.rec.Message}[m.rec.Step]
			if m.rec.Step == trying && m.rec.Message != "" && m.wellSince.IsZero() {
				out.Message += ", and not well: " + m.rec.Message
			}
		}
	}
	m.setStatus(out)
	m.limit(w)
}
