package logrules

import "muster.dev/muster/control/api/logrule"

// whitelist matches on a line whose compare_key is not on the list.
type whitelist struct{ plain }

func (whitelist) about() logrule.Type {
	return logrule.Type{
		Needs:  []string{"compare_key", "whitelist"},
		Knows:  []string{"ignore_null", "aggregation"},
		ByLine: true,
	}
}

func (whitelist) plan(p *plan, ask askFunc) (traits, error) {
	p.listed = setOf(p.rule.Whitelist)
	return traits{}, ask(p.rule.Filter, "", p.rule.CompareKey...)
}

func (whitelist) take(r *round, _ int, it item) {
	if it.value == "" && r.p.rule.IgnoreNull || it.value != "" && r.p.listed[it.value] {
		return
	}
	r.line(it, "%s is %q, which is not on the whitelist: %s", r.p.rule.CompareKey[0], it.value, clip(it.n.Message))
}
