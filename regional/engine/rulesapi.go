package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/rules"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"
)

const (
	// maxAlertsAnswered is how many alerts one answer has, of /api/v1/alerts or /api/v1/rules.
	maxAlertsAnswered = 10_000
	// maxAlertsBytes is about where a page of alerts ends that has not as many.
	maxAlertsBytes = 16 << 20
)

// ruleView is what the rules API shows: the groups as of the last change, of one tenant or
// of all. It takes no lock that a change of rules holds. It is an apiv1.RulesRetriever.
type ruleView struct {
	e      *Engine
	tenant string // empty: all
}

type viewKey struct{}

func viewOf(ctx context.Context, e *Engine) ruleView {
	v, _ := ctx.Value(viewKey{}).(ruleView)
	v.e = e
	return v
}

// RuleGroups implements apiv1.RulesRetriever. They are sorted by file and name.
func (v ruleView) RuleGroups() []*rules.Group {
	all := v.e.groups.Load()
	if all == nil || v.tenant == "" {
		return *cmp.Or(all, &[]*rules.Group{})
	}
	tenants := v.e.loader.tenants()
	var out []*rules.Group
	for _, g := range *all {
		if tenants[g.File()] == v.tenant {
			out = append(out, g)
		}
	}
	return out
}

// AlertingRules implements apiv1.RulesRetriever.
func (v ruleView) AlertingRules() []*rules.AlertingRule {
	var out []*rules.AlertingRule
	for _, g := range v.RuleGroups() {
		for _, r := range g.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// rulesAPI stands before Prometheus' /api/v1/rules and /api/v1/alerts. Both take a tenant.
// Rules are answered without their alerts when there are more than maxAlertsAnswered of
// those that are asked for (group_limit and group_next_token page them, as in Prometheus);
// alerts come in pages, by limit and next_token.
func (e *Engine) rulesAPI(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		if r.Method != http.MethodGet || path != "/api/v1/rules" && path != "/api/v1/alerts" {
			h.ServeHTTP(w, r)
			return
		}
		q := r.URL.Query()
		v := ruleView{e: e, tenant: q.Get("tenant")}
		if path == "/api/v1/alerts" {
			e.alertPage(w, r, v)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), viewKey{}, v))
		if q.Get("exclude_alerts") == "" && v.countAlerts(q["file[]"], q["rule_group[]"], q["rule_name[]"]) > maxAlertsAnswered {
			q.Set("exclude_alerts", "true")
			u := *r.URL
			u.RawQuery = q.Encode()
			r.URL, r.Form = &u, nil
			w.Header().Set("Muster-Left-Out", fmt.Sprintf("more than %d alerts; ask /api/v1/alerts, or for fewer rules with tenant, file[], rule_group[] or rule_name[]", maxAlertsAnswered))
		}
		h.ServeHTTP(w, r)
	})
}

func (v ruleView) countAlerts(files, groups, names []string) int {
	chosen := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	n := 0
	for _, g := range v.RuleGroups() {
		if !chosen(files, g.File()) || !chosen(groups, g.Name()) {
			continue
		}
		for _, r := range g.Rules() {
			if a, ok := r.(*rules.AlertingRule); ok && chosen(names, a.Name()) {
				n += a.ActiveAlertsCount()
			}
		}
	}
	return n
}

// place is where a page ends: the rule, and the hash of the last alert's labels.
type place struct {
	File, Group string
	Rule        int
	Hash        uint64
}

func (p place) compare(o place) int {
	return cmp.Or(strings.Compare(p.File, o.File), strings.Compare(p.Group, o.Group), cmp.Compare(p.Rule, o.Rule))
}

func (p place) token() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers marshal
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parsePlace(token string) (p place, err error) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return place{}, fmt.Errorf("next_token: want one that an answer gave")
	}
	return p, nil
}

// alertPage writes a page of alerts, in order of their rules and hashes, so that the next
// page begins where this one ends whatever has changed. It is written as it is made.
func (e *Engine) alertPage(w http.ResponseWriter, r *http.Request, v ruleView) {
	q := r.URL.Query()
	limit, after := maxAlertsAnswered, place{Rule: -1}
	var err error
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 {
			err = fmt.Errorf("limit: %q: want a number from 1 to %d", s, maxAlertsAnswered)
		}
		limit = min(limit, maxAlertsAnswered)
	}
	if s := q.Get("next_token"); s != "" && err == nil {
		after, err = parsePlace(s)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "bad_data", "error": err.Error()})
		return
	}
	p := &pager{w: w, limit: limit}
	p.write(`{"status":"success","data":{"alerts":[`)
	for _, g := range v.RuleGroups() {
		for i, rule := range g.Rules() {
			at := place{File: g.File(), Group: g.Name(), Rule: i}
			a, ok := rule.(*rules.AlertingRule)
			if !ok || at.compare(after) < 0 {
				continue
			}
			if !p.rule(r.Context(), a, at, after) {
				return
			}
		}
	}
	p.write(`]}}` + "\n")
}

type pager struct {
	w            io.Writer
	limit        int
	alerts, size int
	last         place
	err          error
}

func (p *pager) write(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
		p.size += len(s)
	}
}

// rule writes the alerts of a rule; false: the page is over, and closed.
func (p *pager) rule(ctx context.Context, rule *rules.AlertingRule, at, after place) bool {
	type hashed struct {
		*rules.Alert
		hash uint64
	}
	var list []hashed
	for _, a := range rule.ActiveAlerts() {
		if h := a.Labels.Hash(); at.compare(after) > 0 || h > after.Hash {
			list = append(list, hashed{a, h})
		}
	}
	slices.SortFunc(list, func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
	for _, a := range list {
		if p.err != nil || ctx.Err() != nil {
			return false // nobody reads it
		}
		if p.alerts == p.limit || p.size > maxAlertsBytes {
			p.write(fmt.Sprintf(`],"nextToken":%q},"warnings":["there are more alerts: ask for them with next_token"]}`+"\n", p.last.token()))
			return false
		}
		shown := apiv1.Alert{Labels: a.Labels, Annotations: a.Annotations, State: a.State.String(), ActiveAt: &a.ActiveAt, Value: strconv.FormatFloat(a.Value, 'e', -1, 64)}
		if !a.KeepFiringSince.IsZero() {
			shown.KeepFiringSince = &a.KeepFiringSince
		}
		b, err := json.Marshal(shown)
		if err != nil {
			p.err = err
			return false
		}
		if p.alerts > 0 {
			p.write(",")
		}
		p.write(string(b))
		p.alerts++
		p.last = at
		p.last.Hash = a.hash
	}
	return true
}
