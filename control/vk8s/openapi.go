package vk8s

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
)

// The protobuf forms of OpenAPI, by their names as media types; clients also write
// .v2@v1.0, which is none.
const (
	protoV2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	protoV3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// document is one of the stock API server's OpenAPI documents, narrowed to what is
// served. Its JSON takes a while to read, so it is kept while the source is the same.
type document struct {
	source      string // ETag of the stock document
	of          *catalog
	json, proto []byte
}

func (m *Mount) serveOpenAPI(s Stock, w http.ResponseWriter, req *http.Request, c call) error {
	all, err := m.catalogNow(req.Context(), s)
	if err != nil {
		return err
	}
	path := c.path(false)
	if len(c.parts) == 2 && c.parts[1] == "v3" {
		return serveOpenAPIIndex(s, w, req, all)
	}
	toProto, protoType := handler.ToProtoBinary, protoV2
	if c.parts[1] == "v3" {
		toProto, protoType = handler3.ToV3ProtoBinary, protoV3
		gv := schema.GroupVersion{Version: c.parts[len(c.parts)-1]}
		if c.parts[2] == "apis" {
			gv.Group = c.parts[3]
		}
		if !all.has(gv) || gv.Group == metricsGroup { // of which there is no document
			return c.unknown()
		}
	}
	d, err := m.document(s, req, path, all)
	if err != nil {
		return err
	}
	if accept := strings.ReplaceAll(req.Header.Get("Accept"), "@v1.0", ".v1.0"); !strings.Contains(accept, protoType) {
		writeTagged(w, req, "application/json", d.json)
		return nil
	}
	m.mu.Lock()
	proto := d.proto
	m.mu.Unlock()
	if proto == nil {
		if proto, err = toProto(d.json); err != nil {
			return apierrors.NewInternalError(fmt.Errorf("%s: %w", path, err))
		}
		m.mu.Lock()
		d.proto = proto
		m.mu.Unlock()
	}
	writeTagged(w, req, protoType, proto)
	return nil
}

func serveOpenAPIIndex(s Stock, w http.ResponseWriter, req *http.Request, all *catalog) error {
	a, err := fetch(req.Context(), s, "/openapi/v3", "application/json", "")
	if err != nil {
		return err
	}
	var index struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &index); err != nil {
		return apierrors.NewInternalError(err)
	}
	for path := range index.Paths {
		p := strings.Split(path, "/")
		gv := schema.GroupVersion{Version: p[len(p)-1]}
		if len(p) == 3 && p[0] == "apis" {
			gv.Group = p[1]
		}
		if len(p) < 2 || len(p) == 2 && p[0] != "api" || !all.has(gv) {
			delete(index.Paths, path)
		}
	}
	b, err := json.Marshal(index)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	writeTagged(w, req, "application/json", b)
	return nil
}

// document returns a document narrowed to what is served.
func (m *Mount) document(s Stock, req *http.Request, path string, all *catalog) (*document, error) {
	m.mu.Lock()
	have := m.docs[path]
	m.mu.Unlock()
	tag := ""
	if have != nil && have.of.same(all) {
		tag = have.source
	}
	a, err := fetch(req.Context(), s, path, "application/json", tag)
	if err != nil {
		return nil, err
	}
	if a.code == http.StatusNotModified {
		return have, nil
	}
	var doc map[string]any
	if err := json.Unmarshal(a.body.Bytes(), &doc); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s: %w", path, err))
	}
	m.narrowDocument(doc)
	d := &document{source: a.header.Get("Etag"), of: all}
	if d.json, err = json.Marshal(doc); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s: %w", path, err))
	}
	m.mu.Lock()
	m.docs[path] = d
	m.mu.Unlock()
	return d, nil
}

// same says whether two catalogs serve the same.
func (c *catalog) same(o *catalog) bool {
	if c == o {
		return true
	}
	a, errA := json.Marshal([]any{c.core.Items, c.groups.Items})
	b, errB := json.Marshal([]any{o.core.Items, o.groups.Items})
	return errA == nil && errB == nil && string(a) == string(b)
}

// narrowDocument takes out of an OpenAPI document, of version 2 or 3, the paths that are
// not served, and the types that then nothing names.
func (m *Mount) narrowDocument(doc map[string]any) {
	paths, _ := doc["paths"].(map[string]any)
	for path, item := range paths {
		ops, _ := item.(map[string]any)
		if !m.narrowOperations(path, ops) {
			delete(paths, path)
		}
	}
	types, _ := doc["definitions"].(map[string]any)
	if components, ok := doc["components"].(map[string]any); ok {
		types, _ = components["schemas"].(map[string]any)
	}
	used := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				name := ref[strings.LastIndexByte(ref, '/')+1:]
				if !used[name] {
					used[name] = true
					walk(types[name])
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(paths)
	for name := range types {
		if !used[name] {
			delete(types, name)
		}
	}
}

// narrowOperations says whether anything at a path is served, and takes out what is not.
func (m *Mount) narrowOperations(path string, ops map[string]any) bool {
	p := strings.Split(strings.Trim(path, "/"), "/")
	c := call{parts: p}
	if c.classify() != nil {
		return false
	}
	switch c.what {
	case info:
		return true
	case resource:
	default:
		return false // of discovery; clients know it
	}
	e, ok := m.entryOf(c.gvr.GroupResource())
	if !ok || e.cluster && c.asked != "" {
		return false
	}
	verbs := e.verbs
	if c.sub != "" {
		verbs = e.subs[c.sub]
	}
	left := false
	for method, op := range ops {
		o, ok := op.(map[string]any)
		if !ok || method == "parameters" {
			continue
		}
		verb, _ := o["x-kubernetes-action"].(string)
		verb = cmp.Or(map[string]string{"post": "create", "put": "update", "connect": "get"}[verb], verb)
		if slices.Contains(verbs, verb) {
			left = true
		} else {
			delete(ops, method)
		}
	}
	return left
}
