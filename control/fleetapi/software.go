package fleetapi

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

const (
	maxSoftwareMessage = 500
	// percentStep is in what steps a download's percent is written.
	percentStep = 10
)

var (
	softwareStates = []v1alpha1.SoftwareState{"", v1alpha1.SoftwareAvailable, v1alpha1.SoftwareScheduled, v1alpha1.SoftwareDownloading, v1alpha1.SoftwareInstalling, v1alpha1.SoftwareDone, v1alpha1.SoftwareFailed}
	// runningVersion is wider than what may be wanted: sites run what others built too.
	runningVersion = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_~-]*$`)
	timesFrom      = time.Unix(-1, 0) // clocks of sites may begin there
	timesTo        = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// cleanSoftware makes what a site says of its software harmless: known components and
// states alone, each component once, in order; what can't be taken of one is left out.
func cleanSoftware(list []*wire.SoftwareStatus, problem func(string, ...any)) []v1alpha1.SiteSoftware {
	var out []v1alpha1.SiteSoftware
	for i, s := range list {
		component := v1alpha1.SoftwareComponent(s.GetComponent())
		switch {
		case i >= 4*len(software.Components): // the rest is no site's honest mistake
			problem("software of %d components, and there are %d", len(list), len(software.Components))
			return out
		case !slices.Contains(software.Components, string(component)):
			problem("software: component %q is none of %v", clip(string(component), 20), software.Components)
			continue
		case slices.ContainsFunc(out, func(o v1alpha1.SiteSoftware) bool { return o.Component == component }):
			problem("software: component %s is there twice", component)
			continue
		}
		version := func(what, v string) string {
			if v != "" && (len(v) > maxVersion || !runningVersion.MatchString(v)) {
				problem("software: %s: %s %q is no version", component, what, clip(v, 20))
				return ""
			}
			return v
		}
		at := func(what string, t *timestamppb.Timestamp) *metav1.Time {
			if t == nil {
				return nil
			}
			if when := t.AsTime(); t.IsValid() && when.After(timesFrom) && when.Before(timesTo) {
				return &metav1.Time{Time: when.Truncate(time.Second)}
			}
			problem("software: %s: %s can be no time", component, what)
			return nil
		}
		o := v1alpha1.SiteSoftware{Component: component, Running: version("running", s.GetRunning()), Wanted: version("wanted", s.GetWanted()), State: v1alpha1.SoftwareState(s.GetState()),
			Digest: s.GetDigest(), Message: text(s.GetMessage(), maxSoftwareMessage), Since: at("since", s.GetSince())}
		if !slices.Contains(softwareStates, o.State) {
			problem("software: %s: %q is no state", component, clip(s.GetState(), 20))
			o.State = ""
		}
		if !hexDigest.MatchString(o.Digest) {
			problem("software: %s: digest %q is no SHA-256", component, clip(o.Digest, 20))
			o.Digest = ""
		}
		if o.State == v1alpha1.SoftwareScheduled {
			o.StartsAt = at("startsAt", s.GetStartsAt())
		}
		if o.State == v1alpha1.SoftwareDownloading {
			if s.GetPercent() > 100 {
				problem("software: %s: %d percent", component, s.GetPercent())
			}
			percent := int32(min(s.GetPercent(), 100)) / percentStep * percentStep
			o.Percent = &percent
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b v1alpha1.SiteSoftware) int {
		return cmp.Compare(slices.Index(software.Components, string(a.Component)), slices.Index(software.Components, string(b.Component)))
	})
	return out
}

// SoftwareSaid is what a site says of its software, before it stands in its status.
type SoftwareSaid struct {
	// Told: it has said something since this process runs; else Software is what its status
	// says.
	Told     bool
	Software []v1alpha1.SiteSoftware // must not be changed
	// TooOld: the agent that is, or was last, connected does not know of software, and is
	// given none. Agent is its version.
	TooOld bool
	Agent  string
}

// Of is what it says of a component; nil: nothing, as it can't replace it.
func (s *SoftwareSaid) Of(c v1alpha1.SoftwareComponent) *v1alpha1.SiteSoftware {
	for i := range s.Software {
		if s.Software[i].Component == c {
			return &s.Software[i]
		}
	}
	return nil
}

// SoftwareStanding is how far a site is with what it shall run of a component.
type SoftwareStanding int

// The standings.
const (
	SoftwareUnheard SoftwareStanding = iota // it has not said anything of it yet
	SoftwareMoves                           // it is about it
	SoftwareWaits                           // it has it, and begins later: its window has not come, or its operator put it off
	SoftwareDone
	SoftwareFailed
)

// Standing is how far the site is with the item of a component that has this digest, and
// names this version; why says what failed, or when it begins.
func (s *SoftwareSaid) Standing(c v1alpha1.SoftwareComponent, digest, version string) (standing SoftwareStanding, why string) {
	if s.TooOld {
		return SoftwareFailed, fmt.Sprintf("the agent %s of the site can't replace software: update it by the way that it was installed", cmp.Or(s.Agent, "(version unknown)"))
	}
	o := s.Of(c)
	switch {
	case o == nil && s.Told:
		return SoftwareFailed, fmt.Sprintf("the site can't replace its %s: give it a driver under software in its edge.yaml", c)
	case o == nil || digest == "" || o.Digest != digest:
		return SoftwareUnheard, ""
	}
	switch o.State {
	case v1alpha1.SoftwareFailed:
		return SoftwareFailed, cmp.Or(o.Message, "the site did not say why")
	case v1alpha1.SoftwareDone:
		return SoftwareDone, ""
	case v1alpha1.SoftwareScheduled:
		why = o.Message
		if o.StartsAt != nil {
			why = cmp.Or(why, "begins at "+o.StartsAt.UTC().Format(time.RFC3339))
		}
		return SoftwareWaits, why
	case "":
		if version == "" {
			return SoftwareDone, "" // it was never asked for another one
		}
	}
	return SoftwareMoves, ""
}

// SoftwareOf is what a site said last of its software.
func (s *Server) SoftwareOf(id fleet.SiteID) SoftwareSaid {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.sites[id]
	if st == nil {
		return SoftwareSaid{}
	}
	out := SoftwareSaid{Agent: st.agent, TooOld: st.capability != 0 && st.capability < wire.SoftwareCapability}
	switch {
	case st.report != nil:
		out.Told, out.Software = true, st.report.software
	case st.obj != nil:
		out.Software = st.obj.Status.Software
	}
	return out
}

// sameSoftware tells whether readers of SoftwareOf would do the same with both.
func sameSoftware(a, b []v1alpha1.SiteSoftware) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.SiteSoftware) bool {
		return a.Component == b.Component && a.Running == b.Running && a.Wanted == b.Wanted && a.State == b.State && a.Digest == b.Digest
	})
}

// newKinds are those that older agents don't know, with the capability of the first that do.
var newKinds = []struct {
	kind  string
	since uint32
}{{software.Kind, wire.SoftwareCapability}, {hostconfig.Kind, wire.HostConfigurationCapability}, {factoryreset.Kind, wire.ResetCapability}}

// newest is the capability of agents that know all kinds.
const newest = wire.ResetCapability

// knownTo is the desired state without kinds that an agent of the capability does not know:
// it would call what it can't read a failure. The last few answers are kept, as many sites
// hold the same.
func (s *Server) knownTo(capability uint32, d *wire.DesiredState) *wire.DesiredState {
	var unknown []string
	for _, k := range newKinds {
		if capability < k.since && slices.ContainsFunc(d.GetItems(), func(it *wire.Item) bool { return it.GetKind() == k.kind }) {
			unknown = append(unknown, k.kind)
		}
	}
	if len(unknown) == 0 {
		return d
	}
	key := strings.Join(unknown, ",") + "/" + d.Revision
	s.olderMu.Lock()
	defer s.olderMu.Unlock()
	if out := s.older[key]; out != nil {
		return out
	}
	items := slices.DeleteFunc(slices.Clone(d.Items), func(it *wire.Item) bool { return slices.Contains(unknown, it.GetKind()) })
	out := &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items}
	if len(s.older) >= 32 {
		clear(s.older)
	}
	s.older[key] = out
	return out
}
