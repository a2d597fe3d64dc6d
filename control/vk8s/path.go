package vk8s

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/wire"
)

// under says whether a path is one of a virtual Kubernetes, or only looks like one: what
// begins like it never reaches the stock API server as it came.
func under(u *url.URL) bool {
	p := strings.TrimLeft(u.Path, "/")
	return p == "api/vK8s" || strings.HasPrefix(p, "api/vK8s/")
}

// what a request is for.
type what int

const (
	discovery what = iota // /api, /apis and below, without a resource
	openapi               // /openapi/v2, /openapi/v3 and below
	info                  // /version and the health of the API server
	report                // /muster/...
	resource
)

// call is a request to a virtual Kubernetes, taken to pieces. What it becomes is put
// together from the pieces: nothing of the path that came is passed on.
type call struct {
	namespace, name string // of the virtual Kubernetes
	what            what
	parts           []string // of the path within the virtual Kubernetes, unescaped

	// Of a resource:
	gvr         schema.GroupVersionResource
	asked       string // the namespace in the path; empty: none
	object, sub string
}

// parse takes the path of a request to pieces. It is pure: what it says when the request
// is authorized is what it says when it is served. The error is a Kubernetes status.
func parse(u *url.URL) (call, error) {
	raws := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if n := len(raws) - 1; raws[n] == "" {
		raws = raws[:n] // one slash at the end is nothing
	}
	var parts []string
	for _, raw := range raws {
		part, err := url.PathUnescape(raw)
		if err != nil {
			return call{}, apierrors.NewBadRequest(fmt.Sprintf("the path %.200q: %v", u.EscapedPath(), err))
		}
		parts = append(parts, part)
	}
	for _, part := range parts {
		if part == "" || len(path.IsValidPathSegmentName(part)) > 0 || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }) {
			return call{}, apierrors.NewBadRequest(fmt.Sprintf("the path %.200q: a part of it is empty, \".\", \"..\", or has a character that no name has", u.EscapedPath()))
		}
	}
	// api/vK8s/namespaces/NAMESPACE/NAME
	if len(parts) < 5 || parts[2] != "namespaces" {
		return call{}, notFound("want " + wire.VirtualRoot + "NAMESPACE/NAME/..., where NAME is a VirtualKubernetes")
	}
	c := call{namespace: parts[3], name: parts[4], parts: parts[5:]}
	return c, c.classify()
}

func (c *call) classify() error {
	p := c.parts
	if len(p) == 0 {
		return notFound("it serves /api, /apis, /openapi, /version")
	}
	switch p[0] {
	case "version", "readyz", "livez", "healthz":
		c.what = info
		if len(p) > 1 {
			return c.unknown()
		}
		return nil
	case "openapi":
		c.what = openapi
		switch {
		case len(p) == 2 && (p[1] == "v2" || p[1] == "v3"), // /openapi/v3/api/v1, /openapi/v3/apis/GROUP/VERSION
			len(p) == 4 && p[1] == "v3" && p[2] == "api",
			len(p) == 5 && p[1] == "v3" && p[2] == "apis":
			return nil
		}
		return c.unknown()
	case "muster":
		c.what = report
		return nil
	case "api":
		if len(p) <= 2 {
			c.what = discovery
			return nil
		}
		c.gvr.Version = p[1]
		return c.resource(p[2:])
	case "apis":
		if len(p) <= 3 {
			c.what = discovery
			return nil
		}
		c.gvr.Group, c.gvr.Version = p[1], p[2]
		return c.resource(p[3:])
	}
	return c.unknown()
}

// resource takes what stands behind the version: [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func (c *call) resource(p []string) error {
	c.what = resource
	if p[0] == "watch" || p[0] == "proxy" {
		return notFound("paths with " + p[0] + "/ are not served; use ?watch=true")
	}
	// As the stock API server has it: these two below a namespace are its own.
	if p[0] == "namespaces" && len(p) > 2 && p[2] != "status" && p[2] != "finalize" {
		c.asked, p = p[1], p[2:]
	}
	c.gvr.Resource = p[0]
	if len(p) > 1 {
		c.object = p[1]
	}
	if len(p) > 2 {
		c.sub = p[2]
	}
	if len(p) > 3 {
		return c.unknown()
	}
	return nil
}

func (c *call) unknown() error {
	return notFound("a virtual Kubernetes does not serve /" + strings.Join(c.parts, "/"))
}

// path is what the stock API server is asked for: the pieces, with the namespace of the
// virtual Kubernetes and no other. namespaced: the resource is one of a namespace.
func (c *call) path(namespaced bool) string {
	if c.what != resource {
		return "/" + strings.Join(c.parts, "/")
	}
	p := []string{"", "apis", c.gvr.Group, c.gvr.Version}
	if c.gvr.Group == "" {
		p = []string{"", "api", c.gvr.Version}
	}
	if namespaced {
		p = append(p, "namespaces", c.namespace)
	}
	p = append(p, c.gvr.Resource)
	for _, more := range []string{c.object, c.sub} {
		if more != "" {
			p = append(p, more)
		}
	}
	return strings.Join(p, "/")
}

// stockRequest is a request that the stock API server understands, for its URL.
func stockRequest(req *http.Request, path, query string) *http.Request {
	out := req.Clone(req.Context())
	out.URL = &url.URL{Path: path, RawQuery: query}
	out.RequestURI = out.URL.RequestURI()
	return out
}

func notFound(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: message}}
}

func forbidden(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: fmt.Sprintf(format, args...)}}
}

func notAllowed(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: fmt.Sprintf(format, args...)}}
}

func reads(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead}, method)
}
