// Package components is the software of one site: it takes what control says of each
// component, has a software.Machine a component bring the site there, and says how far they
// are, to control and to the site's own operator.
//
// The agent hands it the items of internal/software's kind, muster-edge says which
// components there are and how each is replaced. It decides nothing: what a site shall run
// comes from control, what may be trusted from the signed repository, and when a version is
// well from the site.
package components

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/software"
	"muster.dev/muster/internal/disk"
	sw "muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/wire"
)

// Path under which a regional serves the repository's files.
const Path = "/software"

// Component is one part of the site that can be replaced.
type Component struct {
	Name   string // os, agent, platform
	Driver software.Driver
	// Image opens what runs, for deltas; nil: whole files are fetched.
	Image func(ctx context.Context) (version string, image *os.File, err error)
	// Architecture of its files; empty: this machine's.
	Architecture string
	// Healthy is asked beside that of the Options; nil: there is no more to ask.
	Healthy func(ctx context.Context) error
	// Hold and Within are as in software.Options.
	Hold, Within           time.Duration
	BeforeBoot, AfterTrial func(ctx context.Context) error
}

// Agent is what this package needs of *agent.Agent.
type Agent interface {
	Endpoint() string
	HTTPClient() *http.Client
	Connected() error
	ReportChanged()
}

// Options of New; Dir and Logger are required.
type Options struct {
	// Dir is where it remembers, and keeps files until they are installed.
	Dir string
	// Root is the file with the repository's root metadata; empty: the first one that
	// control sends is kept, and trusted from then on.
	Root       string
	Components []Component
	// Healthy is as in software.Options.
	Healthy func(ctx context.Context) error
	// Versions are of components that are not replaced here; nil: none.
	Versions map[string]string
	// Remedies say by component what to do where it can't be replaced; nil: nothing special.
	Remedies map[string]string
	Logger   *slog.Logger
	FS       disk.FS // nil: the operating system's
	// Store keeps what must be there after a restart that Dir does not outlive, as on a
	// pod's own disk; nil: Dir does.
	Store software.Store
}

// Components is safe for concurrent use.
type Components struct {
	o     Options
	parts []*part
	agent Agent // from Run on

	mu       sync.Mutex
	unserved []*wire.SoftwareStatus // wanted of components that can't be replaced here
}

// part is a component with what drives it.
type part struct {
	Component
	machine *software.Machine
	source  software.Source
	changed chan struct{}

	mu     sync.Mutex
	wanted software.Wanted
}

// New opens what an earlier process left.
func New(o Options) (*Components, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	c := &Components{o: o}
	for _, comp := range o.Components {
		comp.Architecture = cmp.Or(comp.Architecture, runtime.GOARCH)
		p := &part{Component: comp, changed: make(chan struct{}, 1), wanted: software.Wanted{Unheard: true}}
		p.source = software.Source{Component: comp.Name, Architecture: comp.Architecture, Dir: filepath.Join(o.Dir, comp.Name, "files"), Running: comp.Image, Log: o.Logger}
		var err error
		p.machine, err = software.New(software.Options{
			Component: comp.Name, Driver: comp.Driver, Path: filepath.Join(o.Dir, comp.Name, "state.json"), Store: o.Store, FS: o.FS,
			Healthy: both(o.Healthy, comp.Healthy), Linked: func() error { return c.agent.Connected() }, Hold: comp.Hold, Within: comp.Within, BeforeBoot: comp.BeforeBoot, AfterTrial: comp.AfterTrial,
			Versions: c.versions,
			Fetch: func(ctx context.Context, w software.Wanted, percent func(int)) (string, error) {
				return c.fetch(ctx, p, w, percent)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("software of the %s: %w", comp.Name, err)
		}
		c.parts = append(c.parts, p)
	}
	return c, nil
}

// both asks one after the other; nil is well.
func both(a, b func(context.Context) error) func(context.Context) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(ctx context.Context) error {
		if err := a(ctx); err != nil {
			return err
		}
		return b(ctx)
	}
}

// versions are what runs, by component.
func (c *Components) versions() map[string]string {
	out := map[string]string{}
	for name, v := range c.o.Versions {
		out[name] = v
	}
	for _, p := range c.parts {
		if v := p.machine.Status().Running; v != "" {
			out[p.Name] = v
		}
	}
	return out
}

// fetch is a Machine's Fetch.
func (c *Components) fetch(ctx context.Context, p *part, w software.Wanted, percent func(int)) (string, error) {
	if p.source.Trust == nil {
		if err := c.restoreTrust(p.Name); err != nil {
			return "", err
		}
		root, err := os.ReadFile(c.rootFile())
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("control has not sent the repository's root metadata, and software.root of edge.yaml names none: %w", err)
		}
		if err != nil {
			return "", err
		}
		if p.source.Trust, err = bundle.Open(bundle.Options{Dir: filepath.Join(c.o.Dir, p.Name, "trust"), Root: root, FS: c.o.FS}); err != nil {
			return "", err
		}
	}
	at := c.agent.Endpoint()
	if at == "" {
		return "", errors.New("no regional is known yet")
	}
	p.source.Fetcher = delivery.Fetcher{URL: at + Path, Client: c.agent.HTTPClient(), Limit: delivery.NewLimit(w.BytesPerSecond), FS: c.o.FS}
	path, err := p.source.Fetch(ctx, w, percent)
	return path, errors.Join(err, c.keepTrust(p.Name))
}

// TakeSet implements agent.SetApplier.
func (c *Components) TakeSet(s agent.Set) {
	seen := map[string]bool{}
	var unserved []*wire.SoftwareStatus
	for _, it := range s.Items {
		seen[it.Name] = true
		if it.Err != nil {
			s.Applied(it.Name, it.Digest, it.Err)
			continue // what was wanted before stays wanted
		}
		w, err := c.take(s, it)
		var none *notServed
		if errors.As(err, &none) {
			err = nil // that the report's software says
			st := &wire.SoftwareStatus{Component: it.Name, Running: c.o.Versions[it.Name], Wanted: w.Version, Digest: it.Digest, State: string(software.Failed), Message: none.Error()}
			if st.Running == w.Version { // somebody else brought it there
				st.State, st.Message = string(software.Done), ""
			}
			unserved = append(unserved, st)
		}
		s.Applied(it.Name, it.Digest, err)
		if err == nil {
			s.Good(it.Name, it.Digest)
		}
	}
	for _, p := range c.parts {
		if !seen[p.Name] {
			p.want(software.Wanted{})
		}
	}
	c.mu.Lock()
	c.unserved = unserved
	c.mu.Unlock()
}

// notServed is of a component that this site can't replace.
type notServed struct{ component, remedy string }

// Error says what to do.
func (e *notServed) Error() string {
	return fmt.Sprintf("this site can't replace its %s: %s, or leave the site out of the SoftwarePolicy", e.component, e.remedy)
}

// take hands an item to its Machine. That the item is in effect says only that the site
// has understood it: how far it is stands in the report's software.
func (c *Components) take(s agent.Set, it agent.SetItem) (software.Wanted, error) {
	b, err := s.Blob(it.Digest)
	if err != nil {
		return software.Wanted{}, err
	}
	spec, err := sw.Decode(b)
	if err != nil {
		return software.Wanted{}, err
	}
	if spec.Component != it.Name {
		return software.Wanted{}, fmt.Errorf("software: component: %q in an item that is called %q", spec.Component, it.Name)
	}
	i, architecture := slices.IndexFunc(c.parts, func(p *part) bool { return p.Name == it.Name }), runtime.GOARCH
	if i >= 0 {
		architecture = c.parts[i].Architecture
	}
	w := software.From(spec, architecture, it.Digest)
	if i < 0 {
		if w.Back {
			return w, nil // it runs what it ran before
		}
		remedy := c.o.Remedies[it.Name]
		if remedy == "" {
			remedy = "say how in software.components of its edge.yaml"
		}
		return w, &notServed{it.Name, remedy}
	}
	if err := c.keepRoot(spec.Root); err != nil {
		return w, err
	}
	c.parts[i].want(w)
	return w, nil
}

func (p *part) want(w software.Wanted) {
	p.mu.Lock()
	p.wanted = w
	p.mu.Unlock()
	p.poke()
}

func (p *part) poke() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// lookEvery is how often it is looked whether there is something to report: a download
// does not make a report each second.
const lookEvery = 2 * time.Second

// Run drives the machines until ctx ends. It is called once.
func (c *Components) Run(ctx context.Context, a Agent) error {
	c.agent = a
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, p := range c.parts {
		wg.Go(func() {
			p.machine.Run(ctx, func() software.Wanted {
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.wanted
			}, p.changed, c.o.Logger)
		})
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	told := []*wire.SoftwareStatus{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := c.Report(); !slices.EqualFunc(told, now, same) {
			told = now
			a.ReportChanged()
		}
	}
}

// same compares what is worth a report of its own.
func same(a, b *wire.SoftwareStatus) bool {
	return a.GetComponent() == b.GetComponent() && a.GetRunning() == b.GetRunning() && a.GetWanted() == b.GetWanted() && a.GetDigest() == b.GetDigest() && a.GetState() == b.GetState() &&
		a.GetPercent() == b.GetPercent() && a.GetStartsAt().AsTime().Equal(b.GetStartsAt().AsTime()) && a.GetMessage() == b.GetMessage()
}

func (p *part) status() *wire.SoftwareStatus {
	s := p.machine.Status()
	out := &wire.SoftwareStatus{Component: p.Name, Running: s.Running, Wanted: s.Wanted, Digest: s.Item, State: string(s.Phase), Message: clip(s.Message)}
	if s.Phase == software.Downloading {
		out.Percent = uint32(min(max(s.Percent, 0), 100) / 10 * 10)
	}
	if !s.StartsAt.IsZero() {
		out.StartsAt = timestamppb.New(s.StartsAt)
	}
	if !s.Since.IsZero() {
		out.Since = timestamppb.New(s.Since)
	}
	return out
}

// clip keeps a line short: an error may quote what somebody else sent.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 480)], "") }

// Report is for agent.Options.Software.
func (c *Components) Report() []*wire.SoftwareStatus {
	var out []*wire.SoftwareStatus
	for _, p := range c.parts {
		out = append(out, p.status())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(out, c.unserved...)
}

// Statuses are for people: with what is not replaced here, and why, where there is a remedy.
func (c *Components) Statuses() []software.Status {
	out := []software.Status{}
	for _, p := range c.parts {
		s := p.machine.Status()
		s.Component = p.Name
		out = append(out, s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.o.Remedies)) {
		s := software.Status{Component: name, Running: c.o.Versions[name], Message: "the fleet can't replace it: " + c.o.Remedies[name]}
		for _, u := range c.unserved {
			if u.GetComponent() == name && u.GetState() == string(software.Failed) {
				s.Phase, s.Wanted, s.Message = software.Failed, u.GetWanted(), u.GetMessage()
			}
		}
		out = append(out, s)
	}
	return out
}
