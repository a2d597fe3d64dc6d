package state

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"muster.dev/muster/internal/wire"
)

// encoded is an answer in JSON.
type encoded []byte

// askedFor is how long the answer for a tenant whose gates asked is made with each poll.
const askedFor = 5 * time.Minute

// firing are the answers for the gates of rollouts. They are all alerts of a tenant, by site, and
// asked for every few seconds: made once a poll, and of a tenant that has rollouts before the
// view is there to be asked, so that no gate waits.
type firing struct {
	mu    sync.Mutex
	asked map[string]time.Time // tenant → when last
}

// wanted are the tenants whose answers are made in advance. Those that asked long ago go.
func (f *firing) wanted(now time.Time) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for tenant, at := range f.asked {
		if now.Sub(at) > askedFor {
			delete(f.asked, tenant)
			continue
		}
		out = append(out, tenant)
	}
	return out
}

func (f *firing) asks(tenant string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		f.asked = map[string]time.Time{}
	}
	f.asked[tenant] = now
}

// firingBySite is what fires at all sites of one tenant, for the gates of rollouts.
func (s *State) firingBySite(_ *http.Request, _ url.Values, sc *wire.Scope) (int, any, *wire.Problem) {
	v, p := s.current()
	if p != nil {
		return 0, nil, p
	}
	tenant, ok := sc.One()
	if !ok {
		return 0, nil, wire.Failure(http.StatusBadRequest, "tenant: say which one: these are the alerts of one tenant's sites")
	}
	if len(v.byTenant[tenant]) > 0 { // else there is nothing to make, and names can't fill the memory
		s.firingOf.asks(tenant, time.Now())
	}
	out, err := v.firingOf(tenant)
	if err != nil {
		s.log.Error("alert state: what fires can't be encoded", "tenant", tenant, "err", err)
		return 0, nil, wire.Failure(http.StatusInternalServerError, "the answer can't be encoded")
	}
	return http.StatusOK, out, nil
}

// firingOf is the answer for a tenant, which is made when it is asked for first.
func (v *view) firingOf(tenant string) (encoded, error) {
	v.answers.Lock()
	defer v.answers.Unlock()
	if b, ok := v.answered[tenant]; ok {
		return b, nil
	}
	out := wire.FiringAlerts{AsOf: v.at.UTC(), Tenant: tenant, Sites: map[string][]string{}}
	for _, a := range v.byTenant[tenant] {
		if a.Site != "" && a.State == wire.AlertActive {
			out.Sites[a.Site] = append(out.Sites[a.Site], a.Severity+"/"+a.Name)
		}
	}
	for site, names := range out.Sites {
		slices.Sort(names)
		out.Sites[site] = slices.Compact(names)
	}
	b, err := json.Marshal(out)
	if err != nil || len(v.byTenant[tenant]) == 0 {
		return b, err
	}
	if v.answered == nil {
		v.answered = map[string]encoded{}
	}
	v.answered[tenant] = b
	return b, nil
}
