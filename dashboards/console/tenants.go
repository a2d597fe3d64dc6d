package console

import (
	"net/http"

	"muster.dev/muster/control/api/v1alpha1"
)

// tenantView is a tenant and what it uses of its quotas.
type tenantView struct {
	Name   string      `json:"name"`
	Quotas []quotaView `json:"quotas"` // in the order in which people are shown them
}

// quotaView is one quota. The figures are as old as the tenant's status, which moves by
// a twentieth of the quota at a time.
type quotaView struct {
	Quota string `json:"quota"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"` // 0: none
}

type tenantListView struct {
	Tenants []tenantView `json:"tenants"`
}

// getTenants lists the tenants that the user may read.
func (c *Console) getTenants(w http.ResponseWriter, cl *call) error {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return err
	}
	list, err := c.access.tenantList(cl.Context())
	if err != nil {
		return err
	}
	out := tenantListView{Tenants: []tenantView{}}
	for _, t := range list {
		if !set.has(t.Name) {
			continue
		}
		used := map[string]v1alpha1.QuotaUsage{}
		for _, u := range t.Status.Usage {
			used[u.Quota] = u
		}
		v := tenantView{Name: t.Name, Quotas: []quotaView{}}
		for _, name := range v1alpha1.Quotas {
			if u, known := used[name]; known {
				v.Quotas = append(v.Quotas, quotaView(u))
			}
		}
		out.Tenants = append(out.Tenants, v)
	}
	return writeJSON(w, http.StatusOK, out)
}
