package cortex

import (
	"net/http"
	"strconv"

	"github.com/weaveworks/common/user"

	"muster.dev/muster/internal/diskshare"
)

// diskTurns refuses pushes of the tenants that send most while the disk is nearly full: a
// database that can't write ends the role, for all.
type diskTurns struct{ shares *diskshare.Shares }

func (d diskTurns) each(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != pushPath {
			next.ServeHTTP(w, r)
			return
		}
		tenant := r.Header.Get(user.OrgIDHeaderName)
		if err := d.shares.Admit(tenant); err != nil {
			w.Header().Set("Retry-After", strconv.Itoa(int(diskshare.Pause.Seconds())))
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		d.shares.Count(tenant, int(max(r.ContentLength, 0)))
		next.ServeHTTP(w, r)
	})
}
