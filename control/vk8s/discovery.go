package vk8s

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientdiscovery "k8s.io/client-go/discovery"

	"muster.dev/muster/internal/wire"
)

// catalogLife is how long what the stock API server says of itself is believed.
const catalogLife = time.Second

// catalog is what is served, as clients discover it: what the stock API server says of
// itself, without what is not offered.
type catalog struct {
	core, groups apidiscoveryv2.APIGroupDiscoveryList
	legacy       *metav1.APIGroupList
	resources    map[schema.GroupVersion]*metav1.APIResourceList
}

// answer is what a handler wrote.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// fetch asks the stock API server, as itself. etag: of what is known; the answer then may
// be 304 Not Modified.
func fetch(ctx context.Context, s Stock, path, accept, etag string) (*answer, error) {
	req := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, RequestURI: path, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Accept": {accept}}, Body: http.NoBody}).WithContext(context.WithoutCancel(ctx))
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	req, err := to(s, req, path, "")
	if err != nil {
		return nil, err
	}
	a := &answer{header: http.Header{}, code: http.StatusOK}
	s.Handler.ServeHTTP(a, req.WithContext(request.WithUser(req.Context(), reader)))
	if a.code != http.StatusOK && a.code != http.StatusNotModified {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("%s: the API server answers %d", path, a.code))
	}
	return a, nil
}

const aggregatedV2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// catalogNow is what is served now, or was a moment ago.
func (m *Mount) catalogNow(ctx context.Context, s Stock) (*catalog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.catalog != nil && time.Since(m.made) < catalogLife {
		return m.catalog, nil
	}
	c := &catalog{}
	for path, list := range map[string]*apidiscoveryv2.APIGroupDiscoveryList{"/api": &c.core, "/apis": &c.groups} {
		a, err := fetch(ctx, s, path, aggregatedV2, "")
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(a.body.Bytes(), list); err != nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("discovery of %s: %w", path, err))
		}
		list.Items = slices.DeleteFunc(list.Items, m.narrow)
	}
	if b := m.backend.Load(); b != nil && b.Usage {
		c.groups.Items = append(c.groups.Items, usageGroup())
	}
	c.legacy, c.resources, _ = clientdiscovery.SplitGroupsAndResources(c.groups)
	_, core, _ := clientdiscovery.SplitGroupsAndResources(c.core)
	for gv, list := range core {
		c.resources[gv] = list
	}
	m.catalog, m.made = c, time.Now()
	return c, nil
}

// narrow takes out of a group what is not served; true: nothing is left.
func (m *Mount) narrow(g apidiscoveryv2.APIGroupDiscovery) bool {
	for i := range g.Versions {
		v := &g.Versions[i]
		v.Resources = slices.DeleteFunc(v.Resources, func(r apidiscoveryv2.APIResourceDiscovery) bool {
			e, ok := m.entryOf(schema.GroupResource{Group: g.Name, Resource: r.Resource})
			return !ok || e.cluster == (r.Scope == apidiscoveryv2.ScopeNamespace)
		})
		for j := range v.Resources {
			r := &v.Resources[j]
			e, _ := m.entryOf(schema.GroupResource{Group: g.Name, Resource: r.Resource})
			r.Verbs = both(r.Verbs, e.verbs)
			r.Subresources = slices.DeleteFunc(r.Subresources, func(s apidiscoveryv2.APISubresourceDiscovery) bool { return e.subs[s.Subresource] == nil })
			for k := range r.Subresources {
				r.Subresources[k].Verbs = both(r.Subresources[k].Verbs, e.subs[r.Subresources[k].Subresource])
			}
		}
	}
	return !slices.ContainsFunc(g.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return len(v.Resources) > 0 })
}

func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}

// has says whether anything of a version is served.
func (c *catalog) has(gv schema.GroupVersion) bool {
	list := c.resources[gv]
	return list != nil && len(list.APIResources) > 0
}

func (m *Mount) serveDiscovery(s Stock, w http.ResponseWriter, req *http.Request, c call) error {
	all, err := m.catalogNow(req.Context(), s)
	if err != nil {
		return err
	}
	write := func(obj runtime.Object) error {
		responsewriters.WriteObjectNegotiated(s.Serializer, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, req, http.StatusOK, obj, false)
		return nil
	}
	p := c.parts
	switch {
	case len(p) == 1 && p[0] == "api":
		if writeAggregated(w, req, all.core) {
			return nil
		}
		return write(&metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}})
	case len(p) == 1:
		if writeAggregated(w, req, all.groups) {
			return nil
		}
		return write(all.legacy.DeepCopy())
	case len(p) == 2 && p[0] == "apis":
		if i := slices.IndexFunc(all.legacy.Groups, func(g metav1.APIGroup) bool { return g.Name == p[1] }); i >= 0 {
			return write(all.legacy.Groups[i].DeepCopy())
		}
		return c.unknown()
	}
	gv := schema.GroupVersion{Version: p[len(p)-1]}
	if p[0] == "apis" {
		gv.Group = p[1]
	}
	if !all.has(gv) {
		return c.unknown()
	}
	return write(all.resources[gv].DeepCopy())
}

// writeAggregated writes a list in the form that clients of 1.27 and later ask for, which
// is JSON always; false: this one doesn't.
func writeAggregated(w http.ResponseWriter, req *http.Request, list apidiscoveryv2.APIGroupDiscoveryList) bool {
	version := ""
	for _, v := range []string{"v2", "v2beta1"} {
		if version == "" && strings.Contains(strings.ReplaceAll(req.Header.Get("Accept"), " ", ""), "g=apidiscovery.k8s.io;v="+v+";as=APIGroupDiscoveryList") {
			version = v
		}
	}
	if version == "" {
		return false
	}
	list.TypeMeta = metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/" + version}
	b, err := json.Marshal(list)
	if err != nil {
		return false
	}
	w.Header().Set("Vary", "Accept")
	writeTagged(w, req, "application/json;g=apidiscovery.k8s.io;v="+version+";as=APIGroupDiscoveryList", b)
	return true
}

// writeTagged writes a document, or that it is the one that the client has.
func writeTagged(w http.ResponseWriter, req *http.Request, contentType string, b []byte) {
	tag := `"` + strings.ToUpper(wire.DigestOf(b)) + `"`
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Cache-Control", "no-cache, private")
	if req.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", contentType)
	_, _ = w.Write(b)
}
