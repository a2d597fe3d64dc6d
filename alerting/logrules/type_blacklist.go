package logrules

import "muster.dev/muster/control/api/logrule"

// blacklist matches on a line whose compare_key is on the list.
type blacklist struct{ plain }

func (blacklist) about() logrule.Type {
	return logrule.Type{
		Needs:  []string{"compare_key", "blacklist"},
		Knows:  []string{"aggregation"},
		ByLine: true,
	}
}

func (blacklist) plan(p *plan, ask askFunc) (traits, error) {
	p.listed = setOf(p.rule.Blacklist)
	return traits{}, ask(p.rule.Filter, "", p.rule.CompareKey...)
}

func (blacklist) take(r *round, _ int, it item) {
	if it.value != "" && r.p.listed[it.value] {
		r.line(it, "%s is %q, which is on the blacklist: %s", r.p.rule.CompareKey[0], it.value, clip(it.n.Message))
	}
}

func setOf(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, v := range list {
		out[v] = true
	}
	return out
}
