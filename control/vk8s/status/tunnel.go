package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"muster.dev/muster/internal/fleet"
)

// Dial connects to what serves a site's Kubernetes API: HTTP/1.1 without TLS, through the
// site's own connection.
type Dial func(ctx context.Context, site fleet.SiteID) (net.Conn, error)

const (
	defaultSessions = 1000
	// dialTime bounds how long a site may take to open a tunnel that it was asked for; its
	// regional has forgotten it by then.
	dialTime = time.Minute
	// busySeconds is after how long somebody who got no session may ask again.
	busySeconds = 10
)

// deleteTime bounds how long a site may take to delete or to evict a pod.
const deleteTime = 30 * time.Second

// transport carries the requests of one client to one site, over connections that end with
// it: each is the client's own. upgrade says that it asks for a session.
func (h *server) transport(ctx context.Context, id fleet.SiteID, upgrade bool) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: upgradeBytes, DialContext: func(dialing context.Context, _, _ string) (net.Conn, error) {
		if h.o.Dial == nil {
			return nil, errors.New("sites are not reached from here")
		}
		dialing, cancel := context.WithTimeout(dialing, dialTime)
		defer cancel()
		conn, err := h.o.Dial(dialing, id)
		if err != nil {
			return nil, err
		}
		c := &session{Conn: conn}
		if upgrade {
			c.Conn = newUpgrading(conn)
		}
		c.unwatch = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return c, nil
	}}
}

// session is a connection that ends with its request, also where a library has taken it
// over from there.
type session struct {
	net.Conn
	unwatch func() bool
	once    sync.Once
}

// Close implements net.Conn.
func (c *session) Close() error {
	c.once.Do(func() { c.unwatch() })
	return c.Conn.Close()
}

func (h *server) unreachable(it *item, err error) error {
	id := it.site.id
	if !h.store.IsOnline(id) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("site %s is offline: %s %s can't be reached until it is back", id.Name, strings.ToLower(kindNames[it.kind]), it.name))
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("site %s: %v", id.Name, err))
}

// tunnel passes a request for a subresource on to the pod's site, where the pod has a name
// of its own.
func (r *resource) tunnel(w http.ResponseWriter, req *http.Request, info *request.RequestInfo) error {
	if r.table.kind != pods || !slices.Contains([]string{"log", "exec", "attach", "portforward"}, info.Subresource) {
		return apierrors.NewNotFound(corev1.Resource(r.plural+"/"+info.Subresource), info.Name)
	}
	it, _, err := r.find(req.Context(), info.Name)
	if err != nil {
		return err
	}
	tenant := it.site.id.Tenant
	if !r.server.sessions.Take(tenant) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("tenant %s has as many logs, execs and port-forwards open as it may; close some", tenant), busySeconds)
	}
	defer r.server.sessions.Give(tenant)
	location := &url.URL{Scheme: "http", Host: it.site.id.Name, Path: "/api/v1/namespaces/" + it.namespace + "/pods/" + it.own + "/" + info.Subresource, RawQuery: req.URL.RawQuery}
	out := req.Clone(req.Context())
	for name := range out.Header { // who asks is nobody's business there
		if l := strings.ToLower(name); l == "authorization" || l == "cookie" || strings.HasPrefix(l, "impersonate-") || strings.HasPrefix(l, "x-remote-") {
			out.Header.Del(name)
		}
	}
	// A WebSocket of a browser has its token in here.
	protocols := slices.DeleteFunc(strings.Split(strings.Join(out.Header.Values("Sec-Websocket-Protocol"), ","), ","), func(p string) bool {
		return strings.HasPrefix(strings.TrimSpace(p), "base64url.bearer.authorization")
	})
	if out.Header.Get("Sec-Websocket-Protocol") != "" {
		out.Header.Set("Sec-Websocket-Protocol", strings.Join(protocols, ","))
	}
	out.Header.Del("Origin")
	handler := proxy.NewUpgradeAwareHandler(location, r.server.transport(req.Context(), it.site.id, httpstream.IsUpgradeRequest(req)), false, false, refusal{r.server, it})
	handler.UseLocationHost, handler.UseRequestLocation = true, false
	handler.ServeHTTP(w, out)
	return nil
}

// refusal tells of what goes wrong before a site has answered.
type refusal struct {
	server *server
	it     *item
}

// Error implements proxy.ErrorResponder.
func (r refusal) Error(w http.ResponseWriter, req *http.Request, err error) {
	responsewriters.ErrorNegotiated(r.server.unreachable(r.it, err), r.server.codecs, corev1.SchemeGroupVersion, w, req)
}

// Delete implements rest.GracefulDeleter: the real pod is deleted on its site, and goes
// from here when the site says that it is gone.
func (r *resource) Delete(ctx context.Context, name string, _ rest.ValidateObjectFunc, o *metav1.DeleteOptions) (runtime.Object, bool, error) {
	it, _, err := r.find(ctx, name)
	if err != nil {
		return nil, false, err
	}
	obj := r.table.store.object(it, it.version)
	send, err := r.siteOptions(it, o)
	if err != nil {
		return nil, false, err
	}
	if len(o.DryRun) > 0 {
		return obj, false, nil
	}
	code, answer, err := r.ask(ctx, it, http.MethodDelete, "", send)
	switch {
	case err != nil:
		return nil, false, err
	case code == http.StatusNotFound: // on its way out of here
		return obj, true, nil
	case code >= 300:
		status := metav1.Status{}
		_ = json.Unmarshal(answer, &status)
		return nil, false, apierrors.NewGenericServerResponse(code, "delete", corev1.Resource(r.plural), name, fmt.Sprintf("site %s: %s", it.site.id.Name, cut(status.Message, 1024)), 0, true)
	}
	return obj, false, nil
}

// siteOptions are what a site is told of a removal for which it was asked here: that it is
// of the pod which is shown, and not of one that came after it.
func (r *resource) siteOptions(it *item, o *metav1.DeleteOptions) (*metav1.DeleteOptions, error) {
	send := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, GracePeriodSeconds: o.GracePeriodSeconds, PropagationPolicy: o.PropagationPolicy}
	own := newObject(it.kind)
	if err := own.Unmarshal(it.bytes); err == nil && own.GetUID() != "" {
		send.Preconditions = &metav1.Preconditions{UID: new(own.GetUID())}
	}
	obj := r.table.store.object(it, it.version)
	if p := o.Preconditions; p != nil && (p.UID != nil && *p.UID != obj.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion()) {
		return nil, apierrors.NewConflict(corev1.Resource(r.plural), it.name, fmt.Errorf("the preconditions are not met: the UID is %s, the resource version %s", obj.GetUID(), obj.GetResourceVersion()))
	}
	return send, nil
}

// ask sends a request of a pod, or of a subresource of it ("/eviction"), to its site, and
// returns the answer. It is sent once: what the site says to it comes back at once.
func (r *resource) ask(ctx context.Context, it *item, method, sub string, body any) (code int, answer []byte, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+it.site.id.Name+"/api/v1/namespaces/"+it.namespace+"/pods/"+it.own+sub, bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := r.server.transport(ctx, it.site.id, false).RoundTrip(req)
	if err != nil {
		return 0, nil, r.server.unreachable(it, err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err != nil {
		return 0, nil, r.server.unreachable(it, err)
	}
	return resp.StatusCode, answer, nil
}

// deletesAtOnce bounds how many pods are deleted at a time: a site has room for so many beside
// its sessions.
const deletesAtOnce = 8

// DeleteCollection implements rest.CollectionDeleter.
func (r *resource) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, o *metav1.DeleteOptions, lo *metainternalversion.ListOptions) (runtime.Object, error) {
	lo.Limit, lo.Continue = 0, ""
	items, version, _, _, err := r.list(ctx, lo, math.MaxInt)
	if err != nil {
		return nil, err
	}
	out := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	slots := make(chan struct{}, deletesAtOnce)
	for _, it := range items {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			obj, _, err := r.Delete(ctx, it.name, validate, o.DeepCopy())
			mu.Lock()
			defer mu.Unlock()
			if p, ok := obj.(*corev1.Pod); ok && err == nil { // which it was: all of them, whole, may be gigabytes
				out.Items = append(out.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}})
			} else if err != nil && !apierrors.IsNotFound(err) {
				failed = err // the others are tried all the same
			}
		}()
	}
	wg.Wait()
	return out, failed
}
