package logrules

// anyLine matches on each line.
type anyLine struct{ plain }

func (anyLine) take(r *round, _ int, it item) {
	r.match(it.key, it.first, float64(it.n.Count), it.n.Message, "%s: %s", plural(it.n.Count, "line"), clip(it.n.Message))
}
