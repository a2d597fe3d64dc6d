package logrules

// anyLine matches on each line.
type anyLine struct{ plain }

func (anyLine) take(r *round, _ int, it item) {
	r.line(it, "%s: %s", plural(it.n.Count, "line"), clip(it.n.Message))
}
