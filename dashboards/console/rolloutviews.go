package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// maxSteps of a page: a map has all sites at once.
const maxSteps = 10_000

// rolloutView is a rollout in a list.
type rolloutView struct {
	Tenant       string                 `json:"tenant"`
	Namespace    string                 `json:"namespace"` // as users type it
	Name         string                 `json:"name"`
	CreatedAt    time.Time              `json:"createdAt"`
	Phase        string                 `json:"phase"`
	Message      string                 `json:"message"`
	Changes      []rolloutChangeView    `json:"changes"`
	VirtualSites []string               `json:"virtualSites"`
	Strategy     string                 `json:"strategy"`
	Progress     string                 `json:"progress"`
	Wave         int32                  `json:"wave"`
	WaveCount    int32                  `json:"waveCount"`
	Waves        []rolloutWaveView      `json:"waves"`
	Sites        v1alpha1.RolloutCounts `json:"sites"`
	Paused       bool                   `json:"paused"` // by people
	Next         string                 `json:"next"`
	NextAt       *time.Time             `json:"nextAt"`
	StartedAt    *time.Time             `json:"startedAt"`
	EndedAt      *time.Time             `json:"endedAt"`
}

type rolloutListView struct {
	Total      int           `json:"total"`
	Rollouts   []rolloutView `json:"rollouts"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

// rolloutChangeView is an object, and in words what becomes of it.
type rolloutChangeView struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Text       string `json:"text"`
}

type rolloutWaveView struct {
	Number      int32                  `json:"number"`
	Name        string                 `json:"name"`
	Sites       v1alpha1.RolloutCounts `json:"sites"`
	SoakSeconds float64                `json:"soakSeconds"`
	Approval    bool                   `json:"approval"`
	StartedAt   *time.Time             `json:"startedAt"`
	PassedAt    *time.Time             `json:"passedAt"`
}

// rolloutDetailView is one rollout in full.
type rolloutDetailView struct {
	rolloutView
	By         string               `json:"by"`
	Policy     string               `json:"policy"`
	Supersedes string               `json:"supersedes"`
	Spec       v1alpha1.RolloutSpec `json:"spec"`
	Gates      []gateView           `json:"gates"`
	Decisions  []decisionView       `json:"decisions"`
	Contents   []contentView        `json:"contents"`
	Rights     rolloutRights        `json:"rights"`
}

// rolloutRights is what the user may do. The API server has the last word; this keeps
// pages from offering what it would refuse.
type rolloutRights struct {
	Control   bool `json:"control"`
	Delete    bool `json:"delete"`
	Approve   bool `json:"approve"`
	SkipGates bool `json:"skipGates"`
}

// contentView is one of the contents that sites have; their digit in has is its index.
type contentView struct {
	Index int    `json:"index"`
	Text  string `json:"text"` // such as its images
	New   bool   `json:"new"`  // the one that the rollout brings
}

type gateView struct {
	Name      string   `json:"name"`
	Verdict   string   `json:"verdict"`
	Text      string   `json:"text"`
	Value     string   `json:"value"`
	Limit     string   `json:"limit"`
	Sites     int32    `json:"sites"`
	OfSites   int32    `json:"ofSites"`
	Seconds   int32    `json:"seconds"`
	OfSeconds int32    `json:"ofSeconds"`
	Worst     []string `json:"worst"`
}

type decisionView struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	Text string    `json:"text"`
	By   string    `json:"by"`
}

// rolloutPhase is Queued before the controllers have seen a rollout.
func rolloutPhase(r *v1alpha1.Rollout) v1alpha1.RolloutPhase {
	return cmp.Or(r.Status.Phase, v1alpha1.RolloutQueued)
}

func viewRollout(ref rolloutRef, r *v1alpha1.Rollout) rolloutView {
	st := &r.Status
	v := rolloutView{Tenant: ref.tenant, Namespace: ref.namespace, Name: r.Name, CreatedAt: r.CreationTimestamp.UTC(),
		Phase: string(rolloutPhase(r)), Message: st.Message, VirtualSites: slices.Clone(r.Spec.VirtualSites),
		Changes: []rolloutChangeView{}, Strategy: string(cmp.Or(r.Spec.Strategy.Type, v1alpha1.StrategyCanary)),
		Progress: st.Progress, Wave: st.Wave, WaveCount: st.WaveCount, Waves: []rolloutWaveView{}, Sites: st.Sites, Paused: r.Spec.Control.Paused,
		Next: st.Next, NextAt: timeView(st.NextAt), StartedAt: timeView(st.StartedAt), EndedAt: timeView(st.EndedAt)}
	if v.VirtualSites == nil {
		v.VirtualSites = []string{}
	}
	for _, ch := range r.Spec.Changes {
		v.Changes = append(v.Changes, rolloutChangeView{ch.APIVersion, ch.Kind, ch.Name, strings.Clone(cutText(changeText(ch)))})
	}
	for _, w := range st.Waves {
		wave := rolloutWaveView{Number: w.Number, Name: w.Name, Sites: w.Sites, SoakSeconds: r.Spec.Soak.Seconds(), Approval: w.Approval, StartedAt: timeView(w.StartedAt), PassedAt: timeView(w.PassedAt)}
		if w.SoakSeconds != nil {
			wave.SoakSeconds = float64(*w.SoakSeconds)
		}
		v.Waves = append(v.Waves, wave)
	}
	return v
}

// maxChangeText of what becomes of an object, in bytes.
const maxChangeText = 1000

func cutText(s string) string {
	if len(s) > maxChangeText {
		s = strings.ToValidUTF8(s[:maxChangeText], "") + "…"
	}
	return s
}

// changeText says what becomes of an object.
func changeText(ch v1alpha1.RolloutChange) string {
	switch {
	case len(ch.Images) > 0:
		var out []string
		for name, image := range ch.Images {
			out = append(out, name+"="+image)
		}
		slices.Sort(out)
		return strings.Join(out, ", ")
	case ch.Revision != nil:
		return "back to revision " + strconv.FormatInt(*ch.Revision, 10)
	case ch.Content != nil:
		return cmp.Or(contentText(ch.Content.Raw), "new content")
	}
	return "as it was written"
}

func viewContents(state *v1alpha1.RolloutStateSpec) []contentView {
	out := []contentView{}
	for _, o := range state.Objects {
		for i, raw := range o.Contents {
			if i == len(out) {
				out = append(out, contentView{Index: i})
			}
			if text := contentText(raw.Raw); text != "" {
				out[i].Text = strings.TrimPrefix(out[i].Text+", "+text, ", ")
			}
		}
	}
	for i := range out {
		out[i].New = i == len(out)-1 && i > 0
	}
	return out
}

func viewGates(in []v1alpha1.GateReading) []gateView {
	out := make([]gateView, 0, len(in))
	for _, g := range in {
		v := gateView{g.Name, string(g.Verdict), g.Text, g.Value, g.Limit, g.Sites, g.OfSites, g.Seconds, g.OfSeconds, g.Worst}
		if v.Worst == nil {
			v.Worst = []string{}
		}
		out = append(out, v)
	}
	return out
}

func viewDecisions(in []v1alpha1.RolloutDecision) []decisionView {
	out := make([]decisionView, 0, len(in))
	for _, d := range in {
		out = append(out, decisionView{d.At.UTC(), d.What, d.Text, d.By})
	}
	return out
}

// steps are the words for the letters of a RolloutState.
var steps = map[v1alpha1.SiteStep]string{
	v1alpha1.StepWaiting: "waiting", v1alpha1.StepOffline: "offline", v1alpha1.StepHeld: "held", v1alpha1.StepUpdating: "updating",
	v1alpha1.StepReady: "ready", v1alpha1.StepPassed: "passed", v1alpha1.StepFailed: "failed", v1alpha1.StepRolledBack: "rolledBack",
}

// stepView is where a site stands in a rollout.
type stepView struct {
	Site string `json:"site"`
	Wave int    `json:"wave"` // from 1; 0: none yet, or one that the status does not show
	Step string `json:"step"`
	Has  int    `json:"has"` // which content it shall have
}

type stepListView struct {
	Total      int            `json:"total"` // that match, on all pages
	Counts     map[string]int `json:"counts"`
	Sites      []stepView     `json:"sites"`
	NextCursor string         `json:"nextCursor,omitempty"`
}

// viewSteps returns the sites in the order of the waves.
func viewSteps(waves []v1alpha1.RolloutWaveStatus, state *v1alpha1.RolloutStateSpec) []stepView {
	names := strings.Fields(state.Sites)
	out := make([]stepView, len(names))
	for i, name := range names {
		for len(waves) > 0 && i >= int(waves[0].End) {
			waves = waves[1:]
		}
		wave := 0
		if len(waves) > 0 && i >= int(waves[0].Begin) {
			wave = int(waves[0].Number)
		}
		v := stepView{Site: name, Wave: wave, Step: steps[v1alpha1.StepWaiting]}
		if i < len(state.Steps) {
			v.Step = cmp.Or(steps[v1alpha1.SiteStep(state.Steps[i])], v.Step)
		}
		if i < len(state.Has) && state.Has[i] >= '0' && state.Has[i] <= '9' {
			v.Has = int(state.Has[i] - '0')
		}
		out[i] = v
	}
	return out
}

func (c *Console) getRolloutSites(w http.ResponseWriter, cl *call) error {
	from := 0
	if s := cl.q.Get("cursor"); s != "" {
		if wire.DecodeCursor(s, &from) != nil || from < 0 {
			return invalid("cursor", "take it unchanged from nextCursor of the page before")
		}
	}
	r, err := c.rolloutOf(w, cl)
	if err != nil {
		return err
	}
	state, err := c.kube.getRolloutState(cl.Context(), r.ref)
	if err != nil {
		return err
	}
	out := stepListView{Counts: map[string]int{}, Sites: []stepView{}}
	for _, name := range steps {
		out.Counts[name] = 0
	}
	wave, _ := strconv.Atoi(cl.q.Get("wave"))
	limit := limitOf(cl.q)
	for i, v := range viewSteps(r.Status.Waves, state) {
		if wave > 0 && v.Wave != wave || !strings.Contains(v.Site, cl.q.Get("q")) {
			continue
		}
		out.Counts[v.Step]++
		if want := cl.q["step"]; len(want) > 0 && !slices.Contains(want, v.Step) {
			continue
		}
		out.Total++
		switch {
		case i < from:
		case len(out.Sites) < limit:
			out.Sites = append(out.Sites, v)
		case out.NextCursor == "":
			out.NextCursor = wire.EncodeCursor(i)
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
