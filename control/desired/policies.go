package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// effectiveName is the name of a site's one collection policy.
const effectiveName = "effective"

// policies renders collection policies. Its methods are called with the Store's lock held.
type policies struct {
	// shipped is what health reads of a site that no HealthPolicy selects.
	shipped      []string
	shippedReads []fleet.HealthRead
	// merged is the result for a set of policies, so that a thousand sites that are
	// selected by the same ones are merged and encoded once.
	merged map[string]*render.List
}

func newPolicies(shipped *v1alpha1.HealthPolicySpec) *policies {
	ps := &policies{merged: map[string]*render.List{}}
	if shipped != nil {
		ps.shipped, ps.shippedReads = MetricNames(shipped), HealthReads(shipped)
	}
	return ps
}

// forget drops what was made of former policies.
func (ps *policies) forget() { clear(ps.merged) }

// policiesKey names a set of policies of one tenant.
func policiesKey(tenant string, list []*inventory.Policy) string {
	var key strings.Builder
	for _, p := range list {
		fmt.Fprintf(&key, "%s/%s/%s/%d\n", p.Kind, tenant, p.Name, p.Content)
	}
	return key.String()
}

func specOf(p *inventory.Policy) *v1alpha1.CollectionPolicySpec {
	return &p.Object.(*v1alpha1.CollectionPolicy).Spec
}

// Render returns always one list, of one policy: the defaults if none selects the site.
func (ps *policies) Render(site *inventory.Site) []*render.List {
	chosen, health := site.PoliciesOf(fleet.KindCollectionPolicy), site.PoliciesOf(kindHealthPolicy)
	health = read(health)
	key := policiesKey(site.ID.Tenant, slices.Concat(chosen, health))
	list, ok := ps.merged[key]
	if !ok {
		specs := make([]v1alpha1.CollectionPolicySpec, len(chosen))
		for i, p := range chosen {
			specs[i] = *specOf(p)
		}
		merged := Merge(specs)
		merged.Reserve, merged.Reads = ps.shipped, ps.shippedReads
		if len(health) > 0 && !health[0].Shadow() {
			merged.Reserve, merged.Reads = nil, HealthReads(&health[0].Object.(*v1alpha1.HealthPolicy).Spec)
		}
		for _, p := range health {
			names := MetricNames(&p.Object.(*v1alpha1.HealthPolicy).Spec)
			merged.Reserve = slices.Compact(slices.Sorted(slices.Values(slices.Concat(merged.Reserve, names))))
		}
		piece := NewPiece(effectiveName, merged.Encode())
		list = &render.List{Pieces: []*render.Piece{{Item: &wire.Item{Kind: fleet.KindCollectionPolicy, Name: piece.Name, Digest: piece.Digest, Size: int64(len(piece.Blob))}, Blob: piece.Blob}}}
		ps.merged[key] = list
	}
	return []*render.List{list}
}

// read are the health policies whose metrics are read, of those that select a site: the
// strongest, which is in effect, and the strongest in shadow.
func read(health []*inventory.Policy) []*inventory.Policy {
	var out []*inventory.Policy
	for _, shadow := range []bool{false, true} {
		if i := slices.IndexFunc(health, func(p *inventory.Policy) bool { return p.Shadow() == shadow }); i >= 0 {
			out = append(out, health[i])
		}
	}
	return out
}

// Merge joins policies, strongest first, by the rule that the CollectionPolicy
// type states: lists are joined; each scalar, and each metric's aggregation, comes
// from the strongest policy that sets it; what none sets has its default.
//
// It does not validate: a policy that admission let through by mistake reaches the
// site, which keeps its last good one and says so in a condition.
func Merge(specs []v1alpha1.CollectionPolicySpec) fleet.CollectionPolicy {
	out := fleet.CollectionPolicy{
		SeriesBudget: fleet.DefaultSeriesBudget, Interval: fleet.DefaultInterval,
		SpoolMaxBytes: fleet.DefaultSpoolMaxBytes, SpoolMaxAge: fleet.DefaultSpoolMaxAge,
	}
	for _, sp := range slices.Backward(specs) { // weakest first: each overwrites what it sets
		out.AllowNames = append(out.AllowNames, sp.Allow.Names...)
		out.AllowPatterns = append(out.AllowPatterns, sp.Allow.Patterns...)
		out.DropLabels = append(out.DropLabels, sp.DropLabels...)
		for _, d := range sp.DropSeries {
			out.DropSeries = append(out.DropSeries, fleet.SeriesDrop{Metric: d.Metric, Label: d.Label, Values: d.Values})
		}
		for _, a := range sp.Aggregations {
			if out.Aggregations == nil {
				out.Aggregations = map[string]string{}
			}
			out.Aggregations[a.Metric] = a.Op
		}
		if sp.SeriesBudget != nil {
			out.SeriesBudget = int(*sp.SeriesBudget)
		}
		if sp.Interval != nil {
			out.Interval = sp.Interval.Duration
		}
		if sp.Spool != nil && sp.Spool.MaxBytes != nil {
			out.SpoolMaxBytes = sp.Spool.MaxBytes.Value()
		}
		if sp.Spool != nil && sp.Spool.MaxAge != nil {
			out.SpoolMaxAge = sp.Spool.MaxAge.Duration
		}
	}
	return out
}

const kindHealthPolicy = "HealthPolicy"

// MetricNames lists the metrics that a HealthPolicy reads: their series have reserved
// places in the budget. A selector without a name reserves nothing, and what can't be
// parsed neither: health says so itself.
func MetricNames(spec *v1alpha1.HealthPolicySpec) []string {
	names := map[string]bool{}
	for i := range spec.Signals {
		readNames(spec.Signals[i].Query, names)
		readNames(spec.Signals[i].Objects, names)
	}
	for i := range spec.Packs {
		readNames(spec.Packs[i].When, names)
	}
	return slices.Sorted(maps.Keys(names))
}

// readNames adds the metrics that a query names.
func readNames(query string, names map[string]bool) {
	expr, err := parser.ParseExpr(query)
	if query == "" || err != nil {
		return
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			for _, m := range vs.LabelMatchers {
				if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
					names[m.Value] = true
				}
			}
		}
		return nil
	})
}

// HealthReads lists the metrics of a HealthPolicy's scores by dimension and pack. Those that
// only name objects are left out: a score needs none of them.
func HealthReads(spec *v1alpha1.HealthPolicySpec) []fleet.HealthRead {
	type key struct{ dimension, pack string }
	sets := map[key]map[string]bool{}
	for i := range spec.Signals {
		s := &spec.Signals[i]
		k := key{string(s.Dimension), s.Pack}
		if sets[k] == nil {
			sets[k] = map[string]bool{}
		}
		readNames(s.Query, sets[k])
	}
	var out []fleet.HealthRead
	for k, names := range sets {
		if len(names) > 0 {
			out = append(out, fleet.HealthRead{Dimension: fleet.Dimension(k.dimension), Pack: k.pack, Metrics: slices.Sorted(maps.Keys(names))})
		}
	}
	slices.SortFunc(out, func(a, b fleet.HealthRead) int {
		return cmp.Or(strings.Compare(string(a.Dimension), string(b.Dimension)), strings.Compare(a.Pack, b.Pack))
	})
	return out
}
