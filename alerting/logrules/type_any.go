package logrules

import "muster.dev/muster/control/api/logrule"

// anyLine matches on each line.
type anyLine struct{ plain }

func (anyLine) about() logrule.Type {
	return logrule.Type{
		Knows:  []string{"aggregation"},
		ByLine: true,
	}
}

func (anyLine) take(r *round, _ int, it item) {
	r.line(it, "%s: %s", plural(it.n.Count, "line"), clip(it.n.Message))
}
