package source

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// resources are the values of variables, for the editor and for dashboards:
// /values/virtual-sites, /values/sites, /values/regions, /values/label-keys and
// /values/labels?key=KEY. Sites, regions and labels take
// virtualSite.
func (s *Source) resources() http.Handler {
	mux := http.NewServeMux()
	serve := func(path string, values func(*http.Request, *console.Client) ([]string, error)) {
		mux.HandleFunc("GET /values/"+path, func(w http.ResponseWriter, r *http.Request) {
			c, err := s.client(headers(r.Header))
			if err != nil {
				answerError(w, http.StatusUnauthorized, err)
				return
			}
			out, err := values(r, c)
			if err != nil {
				answerError(w, int(failure(err).Status), err)
				return
			}
			slices.Sort(out)
			out = slices.Compact(out)
			if out == nil {
				out = []string{}
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(out)
		})
	}
	serve("virtual-sites", func(r *http.Request, c *console.Client) (out []string, err error) {
		all, err := c.VirtualSites(r.Context(), maxLimit)
		for _, v := range all {
			out = append(out, v.Namespace+"/"+v.Name)
		}
		return out, err
	})
	chosen := func(r *http.Request) query {
		q := r.URL.Query()
		return query{VirtualSite: q.Get("virtualSite"), Region: q.Get("region"), Limit: maxLimit}
	}
	serve("sites", func(r *http.Request, c *console.Client) (out []string, err error) {
		sites, _, err := find(r.Context(), c, chosen(r))
		for _, site := range sites {
			out = append(out, site.Name)
		}
		return out, err
	})
	serve("regions", func(r *http.Request, c *console.Client) (out []string, err error) {
		sites, _, err := find(r.Context(), c, chosen(r))
		for _, site := range sites {
			if site.Region != "" {
				out = append(out, site.Region)
			}
		}
		return out, err
	})
	serve("label-keys", func(r *http.Request, c *console.Client) ([]string, error) {
		labels, _, err := c.Keys(r.Context())
		return labels, err
	})
	serve("labels", func(r *http.Request, c *console.Client) (out []string, err error) {
		key := r.URL.Query().Get("key")
		if key == "" {
			return nil, wrong("key", "name a label")
		}
		q := chosen(r)
		found, err := c.Inventory(r.Context(), url.Values{"q": {q.inventory()}, "group": {"label." + key}}, 0)
		for _, v := range found.Groups {
			if v != "" {
				out = append(out, v)
			}
		}
		return out, err
	})
	return mux
}

// headers are those of a call of a resource, which come as Grafana wrote them.
type headers http.Header

func (h headers) GetHTTPHeader(key string) string {
	for k, v := range h {
		if strings.EqualFold(k, key) && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

func answerError(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": strings.TrimSpace(err.Error())})
}
