// Package scenarios is the proof that health says what an operator would: situations
// of a site, in the files of testdata/scenarios, with what it is called by somebody who knows.
//
// A file says what happens in a small simulated cluster (simsite), not what is
// measured: the series follow from the cluster's state as real exporters serve them.
// The tests run all of them through the real collector, a real Prometheus engine and
// the real health engine, in accelerated time. This package reads the files and plays
// them on a simulated site; it judges nothing.
package scenarios

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/loadtest/simsite"
)

//go:embed testdata/scenarios/*.yaml
var files embed.FS

// Scenario is one situation.
type Scenario struct {
	// Name is its key in the file.
	Name string `json:"-"`
	// Story says in a sentence or two what happens.
	Story string `json:"story"`
	// Normal: a day like others. No event may cost the site its colour.
	Normal bool `json:"normal,omitempty"`
	// Tolerates is a colour that a normal day may have: a reboot takes capacity, and a
	// site without half of the exporters is not plain green.
	Tolerates fleet.Colour `json:"tolerates,omitempty"`
	// Site is what the site is made of.
	Site Shape `json:"site,omitempty"`
	// For is how long it takes, beginning when the site has been healthy for Warm().
	For Duration `json:"for,omitempty"`
	// Events in the order of time.
	Events []Event `json:"events,omitempty"`
	// Expect is what an operator would call it. Nil: a normal day, of which nothing is
	// to be said.
	Expect *Expect `json:"expect,omitempty"`
}

// Shape is what a site is made of; the zero value is three nodes with every exporter.
type Shape struct {
	Nodes     int      `json:"nodes,omitempty"`
	Pods      int      `json:"pods,omitempty"`
	Spares    int      `json:"spares,omitempty"`    // of each deployment; default 3
	Exporters []string `json:"exporters,omitempty"` // default: all
	Budget    int      `json:"budget,omitempty"`    // of series; default: the shipped policy's
	// Agentless: a stock Prometheus pushes; nobody holds a stream.
	Agentless bool `json:"agentless,omitempty"`
	// Interval of its scrapes, as a CollectionPolicy has it; default 15s.
	Interval Duration `json:"interval,omitempty"`
}

// Event is something that begins.
type Event struct {
	At Duration `json:"at"`
	// Object and Set are an object of the site and its properties, as simsite's Set has them.
	Object string            `json:"object,omitempty"`
	Set    map[string]string `json:"set,omitempty"`
	// Until takes back what was set.
	Until Duration `json:"until,omitempty"`
	// Every repeats the event, Until included, that long after it began, Times times.
	Every Duration `json:"every,omitempty"`
	Times int      `json:"times,omitempty"`
	// Do is something that a cluster does by itself, on the same object.
	//
	//	reboot    node: it is drained, is off for 90 s, and comes back
	//	crash     node: it falls over, and is back 40 s later
	//	rollout   deployment: its pods are replaced one by one
	//	heal      site: all that was set before is taken back
	//	replace   site: it is deleted, and two minutes later another one, healthy, is registered
	//	          under its name, whose nodes and pods have the same names
	//	rename    site: it had another name until now
	//	policy    site: from now on a policy of its tenant selects it, the shipped one with other
	//	          thresholds: Set has GOOD..BAD by signal
	//	override  site: the same as an override of such a policy, which ends at Until
	Do string `json:"do,omitempty"`
}

// Expect is what an operator would call the situation.
type Expect struct {
	// Dimension that comes first in the reasons, and Words that its text has, in any
	// case. One of "a|b" is enough.
	Dimension fleet.Dimension `json:"dimension,omitempty"`
	Words     []string        `json:"words,omitempty"`
	// Colour that the site gets, or one of several: "orange|red".
	Colour string `json:"colour"`
	// After an event, at From, it must come Within.
	From   Duration `json:"from,omitempty"`
	Within Duration `json:"within,omitempty"`
	// Until when it must hold; default: the end.
	Until Duration `json:"until,omitempty"`
	// Never is a colour that it must not have at any time.
	Never fleet.Colour `json:"never,omitempty"`
	// Changes of colour that are allowed altogether; default 1, and 3 with Recovers.
	Changes int `json:"changes,omitempty"`
	// Recovers: the site is green at the end.
	Recovers bool `json:"recovers,omitempty"`
}

// Says tells whether a text has each of the words in one of its forms.
func (e *Expect) Says(text string) bool {
	text = strings.ToLower(text)
	return !slices.ContainsFunc(e.Words, func(forms string) bool {
		return !slices.ContainsFunc(strings.Split(strings.ToLower(forms), "|"), func(form string) bool { return strings.Contains(text, form) })
	})
}

// Duration is a time.Duration that reads as one.
type Duration time.Duration

// UnmarshalJSON reads "90s".
func (d *Duration) UnmarshalJSON(b []byte) error {
	v, err := time.ParseDuration(strings.Trim(string(b), `"`))
	*d = Duration(v)
	return err
}

// D is the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// Warm is how long the site is healthy before its scenario begins: until rates of all that it
// is scraped for have been there for a while.
func (s *Scenario) Warm() time.Duration { return 3*time.Minute + 4*s.Site.Interval.D() }

// Load reads all scenarios, by name.
func Load() ([]*Scenario, error) {
	names, err := fs.Glob(files, "testdata/scenarios/*.yaml")
	if err != nil {
		return nil, err
	}
	var out []*Scenario
	tmpl := simsite.NewTemplates()
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		list, err := parse(b, tmpl)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b *Scenario) int { return cmp.Compare(a.Name, b.Name) })
	for i := range out[1:] {
		if out[i].Name == out[i+1].Name {
			return nil, fmt.Errorf("two scenarios are called %s", out[i].Name)
		}
	}
	return out, nil
}

// parse reads a file: scenarios by name.
func parse(b []byte, t *simsite.Templates) ([]*Scenario, error) {
	var byName map[string]*Scenario
	if err := yaml.UnmarshalStrict(b, &byName); err != nil {
		return nil, err
	}
	var out []*Scenario
	for name, s := range byName {
		if s == nil {
			return nil, fmt.Errorf("%s: is empty", name)
		}
		s.Name = name
		if err := s.complete(t); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, s)
	}
	return out, nil
}

func (s *Scenario) complete(t *simsite.Templates) error {
	if s.Story == "" {
		return errors.New("story: say what happens")
	}
	if s.Normal == (s.Expect != nil) {
		return errors.New("want either expect, or normal: true")
	}
	s.For = cmp.Or(s.For, Duration(8*time.Minute))
	s.Site.Nodes = cmp.Or(s.Site.Nodes, 3)
	s.Site.Pods = cmp.Or(s.Site.Pods, 2*s.Site.Nodes+17)
	s.Site.Spares = cmp.Or(s.Site.Spares, 3)
	if e := s.Expect; e != nil {
		e.Within = cmp.Or(e.Within, Duration(60*time.Second))
		e.Until = cmp.Or(e.Until, s.For)
		if e.Changes == 0 {
			e.Changes = 1
			if e.Recovers {
				e.Changes = 3 // red turns green by way of orange
			}
		}
	}
	for i, e := range s.Events {
		if e.Object == "" || len(e.Set) == 0 && e.Do == "" {
			return fmt.Errorf("events[%d]: want object, and set or do", i)
		}
	}
	// What can't be set must not be found out in the middle of a run.
	site, err := s.NewSite(time.Now, t, nil)
	if err != nil {
		return err
	}
	steps, err := s.Steps()
	if err != nil {
		return err
	}
	for _, st := range steps {
		if err := st.Do(site); err != nil {
			return err
		}
	}
	return nil
}

// NewSite makes the scenario's site.
func (s *Scenario) NewSite(now func() time.Time, t *simsite.Templates, families func(string) bool) (*simsite.Site, error) {
	return s.newSite(0, now, t, families)
}

// newSite makes one of several of the name; 0 is the first.
func (s *Scenario) newSite(seed uint64, now func() time.Time, t *simsite.Templates, families func(string) bool) (*simsite.Site, error) {
	return simsite.New(simsite.Options{
		Name: s.Name, Seed: seed, Nodes: s.Site.Nodes, Pods: s.Site.Pods, Series: 4000*s.Site.Nodes + 100*s.Site.Pods, Spares: s.Site.Spares, Now: now, Templates: t, Families: families,
	})
}

// Step is one change of a site at one moment.
type Step struct {
	At                      time.Duration // since the scenario began
	Object, Property, Value string
	// Policy makes of the shipped one that which selects the site from now on, if Property
	// is governed.
	Policy func(shipped *v1alpha1.HealthPolicySpec) (*v1alpha1.HealthPolicySpec, error)
}

// Properties of the object site that are the fleet's.
const (
	deleted    = "deleted"
	registered = "registered"
	renamed    = "renamed"
	governed   = "governed"
)

// Do changes the site.
func (st Step) Do(site *simsite.Site) error {
	switch st.Property {
	case "heal":
		site.Heal()
		return nil
	case deleted, registered, renamed, governed:
		return nil // of the fleet, and not of the site
	}
	return site.Set(st.Object, st.Property, st.Value)
}

// Steps are the events, spelled out, in the order of time.
func (s *Scenario) Steps() ([]Step, error) {
	var out []Step
	for i, e := range s.Events {
		for n := range max(1, e.Times) {
			shift := time.Duration(n) * e.Every.D()
			steps, err := e.steps()
			if err != nil {
				return nil, fmt.Errorf("events[%d]: %w", i, err)
			}
			for _, st := range steps {
				st.At += shift
				out = append(out, st)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func (e *Event) steps() ([]Step, error) {
	var out []Step
	add := func(at time.Duration, object, property, value string) {
		out = append(out, Step{At: at, Object: object, Property: property, Value: value})
	}
	if e.Do == "policy" || e.Do == "override" {
		changes, err := e.changes()
		if err != nil {
			return nil, err
		}
		policy := func(shipped *v1alpha1.HealthPolicySpec) (*v1alpha1.HealthPolicySpec, error) {
			return e.policy(shipped, changes)
		}
		return []Step{{At: e.At.D(), Object: e.Object, Property: governed, Policy: policy}}, nil
	}
	for _, property := range slices.Sorted(mapKeys(e.Set)) {
		add(e.At.D(), e.Object, property, e.Set[property])
		if e.Until > 0 {
			add(e.Until.D(), e.Object, property, "")
		}
	}
	kind, name, _ := strings.Cut(e.Object, "/")
	switch at := e.At.D(); {
	case e.Do == "":
	case e.Do == "heal" && kind == "site":
		add(at, e.Object, "heal", "")
	case e.Do == "replace" && kind == "site":
		add(at, e.Object, deleted, "")
		add(at+2*time.Minute, e.Object, registered, "")
	case e.Do == "rename" && kind == "site":
		add(at, e.Object, renamed, "")
	case e.Do == "reboot" && kind == "node":
		// kubectl drain, systemctl reboot, uncordon.
		add(at, e.Object, "cordoned", "yes")
		add(at+30*time.Second, e.Object, "power", "off")
		add(at+120*time.Second, e.Object, "boot", "now")
		add(at+120*time.Second, e.Object, "power", "")
		add(at+135*time.Second, e.Object, "cordoned", "")
	case e.Do == "crash" && kind == "node":
		add(at, e.Object, "power", "off")
		add(at+40*time.Second, e.Object, "boot", "now")
		add(at+40*time.Second, e.Object, "power", "")
	case e.Do == "rollout" && kind == "deployment":
		for r := range 3 {
			// One more than wanted at a time: the new one is pulled and started before an
			// old one goes.
			begin := at + time.Duration(r)*30*time.Second
			fresh, old := fmt.Sprintf("pod/%s-%d", name, r+3), fmt.Sprintf("pod/%s-%d", name, r)
			add(begin, fresh, "gone", "no")
			add(begin, fresh, "waiting", "ContainerCreating")
			add(begin+12*time.Second, fresh, "waiting", "")
			add(begin+12*time.Second, fresh, "unready", "yes")
			add(begin+20*time.Second, fresh, "unready", "")
			add(begin+21*time.Second, old, "unready", "yes")
			add(begin+28*time.Second, old, "gone", "yes")
		}
	default:
		return nil, fmt.Errorf("do: %q on a %s: want reboot or crash on a node, rollout on a deployment, or heal, replace, rename, policy or override on the site", e.Do, kind)
	}
	return out, nil
}

// changes are the event's thresholds.
func (e *Event) changes() ([]v1alpha1.SignalChange, error) {
	var out []v1alpha1.SignalChange
	for name, bounds := range e.Set {
		good, bad, ok := strings.Cut(bounds, "..")
		g, err := resource.ParseQuantity(good)
		b, err2 := resource.ParseQuantity(bad)
		if err = errors.Join(err, err2); err != nil || !ok {
			return nil, fmt.Errorf("set: %s: %q: want GOOD..BAD", name, bounds)
		}
		out = append(out, v1alpha1.SignalChange{Name: name, Good: &g, Bad: &b})
	}
	return out, nil
}

// policy is the shipped policy with the event's thresholds. The end of an override counts
// from when it comes into force, of which the clock knows then.
func (e *Event) policy(shipped *v1alpha1.HealthPolicySpec, changes []v1alpha1.SignalChange) (*v1alpha1.HealthPolicySpec, error) {
	spec := shipped.DeepCopy()
	if e.Do == "override" {
		o := v1alpha1.SignalOverride{Reason: "a scenario", Signals: changes}
		o.Until.Time = time.Unix(0, 0).Add((e.Until - e.At).D())
		spec.Overrides = append(spec.Overrides, o)
		return spec, nil
	}
	for _, c := range changes {
		i := slices.IndexFunc(spec.Signals, func(s v1alpha1.Signal) bool { return s.Name == c.Name })
		if i < 0 {
			return nil, fmt.Errorf("set: there is no signal %s", c.Name)
		}
		spec.Signals[i].Good, spec.Signals[i].Bad = *c.Good, *c.Bad
	}
	return spec, nil
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
