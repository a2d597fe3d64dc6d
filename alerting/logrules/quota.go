package logrules

// limits of one rule over one tenant's sites.
type limits struct{ keys, terms int }

// leastTerms is how many values of a site are remembered however many sites there are.
const leastTerms = 10

// quota shares out the places that a rule has for the sites of a tenant. A site always
// gets its share, and more than that while there are places left: one that floods takes
// the others nothing. In all there are less than twice the limit, or the least of each
// site more.
type quota struct {
	limit, share, taken int
	bySite              map[string]int
}

func newQuota(limit, sites, least int) *quota {
	return &quota{limit: limit, share: max(limit/max(sites, 1), least), bySite: map[string]int{}}
}

// count returns the quota of what there is one of per key.
func count[V any](of map[string]V, limit, sites int) *quota {
	q := newQuota(limit, sites, 1)
	for key := range of {
		q.give(siteOf(key), -1)
	}
	return q
}

// take takes a place for a site if it may have one more.
func (q *quota) take(site string) bool {
	if q.taken >= q.limit && q.bySite[site] >= q.share {
		return false
	}
	q.give(site, -1)
	return true
}

// give gives n places back. A nil quota was not counted yet, and ignores it.
func (q *quota) give(site string, n int) {
	if q != nil {
		q.taken -= n
		q.bySite[site] -= n
	}
}
