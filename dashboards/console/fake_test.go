package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

const consoleToken = "the-console-itself"

// fakeAPI is as much of an API server as the console uses, and strict about it: it
// authenticates, demands impersonation where the console must act as the user,
// refuses it where the console must act as itself, applies RBAC, checks versions on
// patches, and fails the test on any request that it doesn't know.
type fakeAPI struct {
	t   *testing.T
	srv *httptest.Server

	mu       sync.Mutex
	users    map[string]authnv1.UserInfo // token → user
	grants   map[string][]string         // user → "verb namespace"; namespace "*" is all; "verb/resource namespace" for other things than sites
	tenants  []string
	usage    map[string][]v1alpha1.QuotaUsage // by tenant
	sites    map[string]*v1alpha1.Site        // namespace/name
	virtual  map[string]map[string]any        // virtual sites, namespace/name
	version  int
	watchers map[chan metav1.WatchEvent]bool
	asked    map[string]int // kind of request → count
	audit    []string       // user verb namespace/name
	down     bool           // answer 500 to everything
	before   func(verb, key string)
	mount    *fakeMount
	rollouts *fakeRollouts
	views    fakeViews
	// oidc is the API server's authenticator for an identity provider's tokens.
	oidc func(token string) (authnv1.UserInfo, bool)
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{t: t, users: map[string]authnv1.UserInfo{}, grants: map[string][]string{}, sites: map[string]*v1alpha1.Site{}, virtual: map[string]map[string]any{},
		watchers: map[chan metav1.WatchEvent]bool{}, asked: map[string]int{}}
	f.mount = newFakeMount(f)
	f.rollouts = newFakeRollouts(f)
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

func (f *fakeAPI) config() *rest.Config {
	return &rest.Config{Host: f.srv.URL, BearerToken: consoleToken}
}

// user adds a user whose token is "token-"+name.
func (f *fakeAPI) user(name string, grants ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users["token-"+name] = authnv1.UserInfo{Username: name, UID: "uid-" + name, Groups: []string{"system:authenticated", "team-" + name},
		Extra: map[string]authnv1.ExtraValue{"example.org/shift": {"night"}}}
	f.grants[name] = grants
}

func (f *fakeAPI) revoke(token string) { f.mu.Lock(); delete(f.users, token); f.mu.Unlock() }
func (f *fakeAPI) grant(user string, grants ...string) {
	f.mu.Lock()
	f.grants[user] = grants
	f.mu.Unlock()
}
func (f *fakeAPI) setDown(v bool) { f.mu.Lock(); f.down = v; f.mu.Unlock() }
func (f *fakeAPI) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[kind]
}
func (f *fakeAPI) auditLog() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.audit)
}

func (f *fakeAPI) site(tenant, name string, change ...func(*v1alpha1.Site)) {
	s := &v1alpha1.Site{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Site"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: fleet.SystemNamespace(tenant), UID: types.UID("uid-" + tenant + name),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, len(name), 0, time.UTC)),
			Labels:            map[string]string{"region": "eu-west", "muster.dev/system-arch": "amd64"}},
		Spec: v1alpha1.SiteSpec{PublicKey: strings.Repeat("ab", 32), Token: "stores"},
	}
	for _, c := range change {
		c(s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(s, "ADDED")
}

func approved(s *v1alpha1.Site) { s.Spec.Approved = true; s.Status.Phase = fleet.PhaseOnline }

// put stores and tells the watchers; f.mu is held.
func (f *fakeAPI) put(s *v1alpha1.Site, event string) {
	f.version++
	s.ResourceVersion = strconv.Itoa(f.version)
	f.sites[s.Namespace+"/"+s.Name] = s
	ev := watchEvent(event, s)
	for ch := range f.watchers {
		ch <- ev
	}
}

func watchEvent(typ string, o any) metav1.WatchEvent {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	ev := metav1.WatchEvent{Type: typ}
	ev.Object.Raw = raw
	return ev
}

func (f *fakeAPI) may(user, verb, ns string) bool {
	return slices.ContainsFunc(f.grants[user], func(g string) bool {
		return g == verb+" "+ns || g == verb+" *" || g == "* *"
	})
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, format string, args ...any) {
	s := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...)}
	if reason == metav1.StatusReasonInvalid {
		s.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "spec.place.latitude", Message: "does not match"}}}
	}
	reply(w, code, s)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+consoleToken {
		f.t.Errorf("API server: %s %s with Authorization %q: the console must use its own identity", r.Method, r.URL, r.Header.Get("Authorization"))
		status(w, 401, metav1.StatusReasonUnauthorized, "Unauthorized")
		return
	}
	as := r.Header.Get("Impersonate-User")
	const group = "/apis/muster.dev/v1alpha1"
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, group+"/namespaces/"), "/")
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	switch {
	case down:
		status(w, 500, metav1.StatusReasonInternalError, "etcd is away")
	case r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" && as == "" && r.Method == "POST":
		f.tokenReview(w, r)
	case r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews" && as == "" && r.Method == "POST":
		f.accessReview(w, r)
	case r.URL.Path == group+"/tenants" && as == "" && r.Method == "GET":
		f.listTenants(w)
	case r.URL.Path == group+"/sites" && as == "" && r.Method == "GET" && r.URL.Query().Get("watch") == "true":
		f.watchSites(w, r)
	case r.URL.Path == group+"/sites" && as == "" && r.Method == "GET":
		f.mu.Lock()
		out := v1alpha1.SiteList{TypeMeta: metav1.TypeMeta{Kind: "SiteList", APIVersion: v1alpha1.GroupVersion.String()}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
		for _, k := range slices.Sorted(maps.Keys(f.sites)) {
			out.Items = append(out.Items, *f.sites[k])
		}
		f.mu.Unlock()
		reply(w, 200, out)
	case r.URL.Path == group+"/virtualkubernetes" && as == "" && r.Method == "GET":
		f.mount.list(w)
	case (r.URL.Path == group+"/virtualhosts" || r.URL.Path == group+"/advertisepolicies") && as == "" && r.Method == "GET":
		listFakeHosts(w, path.Base(r.URL.Path))
	case strings.HasPrefix(r.URL.Path, group+"/namespaces/") && len(parts) == 3 && parts[1] == "virtualkubernetes" && as != "":
		f.mount.one(w, as, parts[0], parts[2])
	case as != "" && strings.HasPrefix(r.URL.Path, group+"/rollouts"):
		f.rollouts.serve(w, r, as, "", "rollouts", "")
	case as != "" && strings.HasPrefix(r.URL.Path, group+"/namespaces/") && len(parts) > 1 && slices.Contains([]string{"rollouts", "rolloutstates", "gatechecks", "alertrules"}, parts[1]):
		f.rollouts.serve(w, r, as, parts[0], parts[1], strings.Join(parts[2:], "/"))
	case path.Base(r.URL.Path) == "savedviews" || len(parts) == 3 && parts[1] == "savedviews":
		f.serveViews(w, r, as, parts)
	case strings.HasPrefix(r.URL.Path, fakeMountRoot) && as != "":
		f.mount.ServeHTTP(w, r, as)
	case strings.HasPrefix(r.URL.Path, group+"/namespaces/") && len(parts) == 3 && parts[1] == "sites" && as != "":
		f.oneSite(w, r, as, parts[0], parts[2])
	case strings.HasPrefix(r.URL.Path, group+"/namespaces/") && len(parts) == 3 && parts[1] == "virtualsites" && as != "":
		f.oneVirtualSite(w, r, as, parts[0], parts[2])
	default:
		f.t.Errorf("API server: unexpected request %s %s as %q", r.Method, r.URL, as)
		status(w, 404, metav1.StatusReasonNotFound, "no such path")
	}
}

func (f *fakeAPI) tokenReview(w http.ResponseWriter, r *http.Request) {
	var tr authnv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&tr); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	f.asked["token"]++
	u, ok := f.users[tr.Spec.Token]
	f.mu.Unlock()
	if !ok && f.oidc != nil {
		u, ok = f.oidc(tr.Spec.Token)
	}
	if tr.Status = (authnv1.TokenReviewStatus{Authenticated: ok, User: u}); !ok {
		tr.Status.Error = "invalid bearer token"
	}
	reply(w, 201, tr)
}

func (f *fakeAPI) accessReview(w http.ResponseWriter, r *http.Request) {
	var sar authzv1.SubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&sar); err != nil {
		f.t.Error(err)
	}
	a := sar.Spec.ResourceAttributes
	verbs := map[string][]string{"sites": {"list", "patch"}, "logs": {"get"}, "silences": {"get", "create", "delete"}, "virtualkubernetes": {"get"}, "virtualhosts": {"get"}, "advertisepolicies": {"get"}, "deployments": {"create", "patch"}, "pods": {"delete", "get"},
		"rollouts": {"list", "get", "watch", "create", "patch", "delete", "approve", "skip-gates"}, "gatechecks": {"create", "get"}, "savedviews": {"share"}, "alertrules": {"create"}}
	groups := map[string]string{"deployments": "apps", "pods": ""}
	group, stock := "muster.dev", false
	if a != nil {
		if group, stock = groups[a.Resource]; !stock {
			group = "muster.dev"
		}
	}
	if a == nil || a.Group != group || (a.Subresource == "log") != (a.Resource == "pods" && a.Verb == "get") || !slices.Contains(verbs[a.Resource], a.Verb) || sar.Spec.User == "" || len(sar.Spec.Groups) == 0 || len(sar.Spec.Extra) == 0 {
		f.t.Errorf("access review: %+v", sar.Spec)
		status(w, 400, metav1.StatusReasonBadRequest, "bad review")
		return
	}
	ns := a.Namespace
	if ns == "" {
		ns = "*"
	}
	f.mu.Lock()
	f.asked["access"]++
	verb := a.Verb
	if a.Resource != "sites" {
		verb += "/" + strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
	}
	sar.Status.Allowed = f.may(sar.Spec.User, verb, ns)
	f.mu.Unlock()
	reply(w, 201, sar)
}

func (f *fakeAPI) listTenants(w http.ResponseWriter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["tenants"]++
	out := v1alpha1.TenantList{TypeMeta: metav1.TypeMeta{Kind: "TenantList", APIVersion: v1alpha1.GroupVersion.String()}}
	for _, t := range f.tenants {
		out.Items = append(out.Items, v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: t}, Spec: v1alpha1.TenantSpec{Namespaces: []string{"shop"}}, Status: v1alpha1.TenantStatus{Usage: f.usage[t]}})
	}
	reply(w, 200, out)
}

func (f *fakeAPI) watchSites(w http.ResponseWriter, r *http.Request) {
	ch := make(chan metav1.WatchEvent, 1000)
	f.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, k := range slices.Sorted(maps.Keys(f.sites)) {
			ch <- watchEvent("ADDED", f.sites[k])
		}
		ch <- watchEvent("BOOKMARK", &v1alpha1.Site{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Site"},
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(f.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
	}
	f.watchers[ch] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case ev := <-ch:
			if json.NewEncoder(w).Encode(ev) != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

func (f *fakeAPI) oneSite(w http.ResponseWriter, r *http.Request, as, ns, name string) {
	verb := strings.ToLower(r.Method)
	f.mu.Lock()
	hook := f.before
	f.mu.Unlock()
	if hook != nil {
		hook(verb, ns+"/"+name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.impersonated(r, as)
	f.audit = append(f.audit, as+" "+verb+" "+ns+"/"+name)
	if !f.may(as, verb, ns) {
		status(w, 403, metav1.StatusReasonForbidden, "User %q cannot %s resource \"sites\" in namespace %q", as, verb, ns)
		return
	}
	s, ok := f.sites[ns+"/"+name]
	if !ok {
		status(w, 404, metav1.StatusReasonNotFound, "sites.muster.dev %q not found", name)
		return
	}
	switch verb {
	case "get":
		reply(w, 200, s)
	case "patch":
		f.patch(w, r, s)
	default:
		f.t.Errorf("unexpected verb %s", verb)
	}
}

// impersonated checks that the request is made as the whole identity; f.mu is held.
func (f *fakeAPI) impersonated(r *http.Request, as string) {
	u := f.users["token-"+as]
	if r.Header.Get("Impersonate-Uid") != u.UID || !slices.Equal(slices.Sorted(slices.Values(r.Header["Impersonate-Group"])), slices.Sorted(slices.Values(u.Groups))) ||
		r.Header.Get("Impersonate-Extra-Example.org%2fshift") != "night" {
		f.t.Errorf("impersonation of %s is not whole: %v", as, r.Header)
	}
}

func (f *fakeAPI) patch(w http.ResponseWriter, r *http.Request, s *v1alpha1.Site) {
	if ct := r.Header.Get("Content-Type"); ct != string(types.MergePatchType) {
		f.t.Errorf("patch with Content-Type %q", ct)
	}
	var patch, doc map[string]any
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		f.t.Error(err)
	}
	if m, ok := patch["metadata"].(map[string]any); ok {
		if v, ok := m["resourceVersion"]; ok && v != s.ResourceVersion || m["uid"] != nil && m["uid"] != string(s.UID) {
			status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
			return
		}
	}
	raw, _ := json.Marshal(s)
	_ = json.Unmarshal(raw, &doc)
	merge(doc, patch)
	raw, _ = json.Marshal(doc)
	out := &v1alpha1.Site{}
	if err := json.Unmarshal(raw, out); err != nil {
		f.t.Error(err)
	}
	if p := out.Spec.Place; p != nil && p.Address == "refuse me" {
		status(w, 422, metav1.StatusReasonInvalid, "Site is invalid")
		return
	}
	f.put(out, "MODIFIED")
	reply(w, 200, out)
}

// oneVirtualSite answers get and patch; resourceVersions are checked.
func (f *fakeAPI) oneVirtualSite(w http.ResponseWriter, r *http.Request, as, ns, name string) {
	verb := strings.ToLower(r.Method)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.audit = append(f.audit, as+" "+verb+" virtualsite "+ns+"/"+name)
	if !f.may(as, verb+"/virtualsites", ns) {
		status(w, 403, metav1.StatusReasonForbidden, "User %q cannot %s resource \"virtualsites\" in namespace %q", as, verb, ns)
		return
	}
	doc, ok := f.virtual[ns+"/"+name]
	if !ok {
		status(w, 404, metav1.StatusReasonNotFound, "virtualsites.muster.dev %q not found", name)
		return
	}
	if verb == "patch" {
		var patch map[string]any
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			f.t.Error(err)
		}
		meta := doc["metadata"].(map[string]any)
		if patch["metadata"].(map[string]any)["resourceVersion"] != meta["resourceVersion"] {
			status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
			return
		}
		merge(doc, patch)
		f.version++
		meta["resourceVersion"] = strconv.Itoa(f.version)
	}
	reply(w, 200, doc)
}

// merge is RFC 7396.
func merge(doc, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(doc, k)
		case map[string]any:
			sub, ok := doc[k].(map[string]any)
			if !ok {
				sub = map[string]any{}
				doc[k] = sub
			}
			merge(sub, v)
		default:
			doc[k] = v
		}
	}
}
