package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// known fails for what is not there: a misspelt site has no alerts, and scripts would take
// that for good news. Whoever may not look, or can't, is not stopped.
func (g *Globals) known(ctx context.Context, a *api, virtualSite string, sites ...string) error {
	for _, name := range sites {
		if name == "" {
			continue
		}
		if a.absent(ctx, "/api/v1/sites/"+url.PathEscape(name), g.query()) {
			return fmt.Errorf("there is no site %q in %s; `muster get sites` lists them", name, g.whose())
		}
	}
	if virtualSite == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(shared(virtualSite), "/")
	q := g.query()
	q.Set("namespace", namespace)
	if a.absent(ctx, "/api/v1/health/virtualsites/"+url.PathEscape(name), q) {
		return fmt.Errorf("there is no virtual site %s/%s in %s; `muster get virtualsites` lists them", namespace, name, g.whose())
	}
	return nil
}

func (g *Globals) whose() string {
	if t := g.tenantName(); t != "" {
		return "tenant " + t
	}
	return "your tenants"
}

// absent tells that the console says that there is no such thing.
func (a *api) absent(ctx context.Context, path string, q url.Values) bool {
	var x struct{}
	var r *refusal
	return errors.As(a.get(ctx, path, q, &x), &r) && r.status == http.StatusNotFound
}

// refusal is an answer that is none.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }
