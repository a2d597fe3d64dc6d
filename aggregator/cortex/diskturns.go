package cortex

import (
	"net/http"

	"github.com/weaveworks/common/user"

	"muster.dev/muster/internal/diskshare"
)

// diskTurns refuses pushes of the tenants that send most while the disk is nearly full: a
// database that can't write ends the role, for all.
type diskTurns struct{ shares *diskshare.Shares }

// afterDisk is when a sender that was refused comes back, in seconds.
const afterDisk = "30"

func (d diskTurns) each(next http.Handler) http.Handler {
	if d.shares == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pushPath {
			next.ServeHTTP(w, r)
			return
		}
		tenant := r.Header.Get(user.OrgIDHeaderName)
		if err := d.shares.Admit(tenant); err != nil {
			w.Header().Set("Retry-After", afterDisk)
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		d.shares.Count(tenant, int(max(r.ContentLength, 0)))
		next.ServeHTTP(w, r)
	})
}
