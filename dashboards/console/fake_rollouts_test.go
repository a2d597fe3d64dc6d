package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/control/api/v1alpha1"
)

// fakeRollouts is as much of the API server as the console uses of rollouts, their states
// and gate checks: it lets users do what the grants say, and checks versions on patches.
type fakeRollouts struct {
	api      *fakeAPI
	objects  map[string]map[string]any // namespace/resource/name
	watchers map[chan metav1.WatchEvent]string
	// verdict is what a gate check that is made gets at once; nil: nothing for ever.
	verdict *v1alpha1.GateCheckStatus
	// listed are the bytes of each page of a list; before is called with whose list it is,
	// before it is answered.
	listed []int
	gets   map[string]int // of single objects, by resource
	before func(as string)
	// beforePatch may change what is stored, as a controller that is faster.
	beforePatch func(have map[string]any)
}

// fakeSteps of the rollout web-1: waves of 1, 3 and 6 sites.
var fakeSteps = v1alpha1.RolloutStateSpec{Held: true, By: "alice", Policy: "careful", Sites: "s0 s1 s2 s3 s4 s5 s6 s7 s8 s9", Steps: "pruohwwwwf", Has: "1110000000",
	Objects: []v1alpha1.RolloutObject{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Contents: []runtime.RawExtension{
		{Raw: []byte(`{"spec":{"containers":[{"name":"web","image":"shop/web:1"}]}}`)}, {Raw: []byte(`{"spec":{"containers":[{"name":"web","image":"shop/web:2"}]}}`)}}}}}

func fakeRollout(ns, name string, created time.Time) *v1alpha1.Rollout {
	at := metav1.NewTime(created)
	return &v1alpha1.Rollout{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Rollout"},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(ns + name), CreationTimestamp: at, ResourceVersion: "5"},
		Spec: v1alpha1.RolloutSpec{VirtualSites: []string{"shared/all-eu"},
			Changes:     []v1alpha1.RolloutChange{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Images: map[string]string{"web": "shop/web:2"}}},
			RolloutPlan: v1alpha1.RolloutPlan{Soak: metav1.Duration{Duration: 15 * time.Minute}, Gates: []v1alpha1.RolloutGate{{Name: "ready", Ready: &v1alpha1.GateReady{Percent: 100}}}}},
		Status: v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutProgressing, Message: "wave 2 of 3 soaks", Progress: "2/3", Wave: 2, WaveCount: 3, StartedAt: &at,
			Sites: v1alpha1.RolloutCounts{Total: 10, Waiting: 4, Updating: 1, Updated: 2, Passed: 1, Failed: 1, Offline: 1, Held: 1}, Next: "the gates are read again", NextAt: &at,
			Waves: []v1alpha1.RolloutWaveStatus{{Number: 1, End: 1, Name: "10%", Sites: v1alpha1.RolloutCounts{Total: 1}, StartedAt: &at, PassedAt: &at}, {Number: 2, Begin: 1, End: 4, Name: "40%", Sites: v1alpha1.RolloutCounts{Total: 3}}, {Number: 3, Begin: 4, End: 10, Name: "100%", Sites: v1alpha1.RolloutCounts{Total: 6}}},
			Gates: []v1alpha1.GateReading{{Name: "ready", Verdict: v1alpha1.GatePass, Text: "all are ready"},
				{Name: "peers", Verdict: v1alpha1.GateWait, Text: "1 of 3 sites", Value: "-0.5", Limit: "-10", Sites: 1, OfSites: 3, Seconds: 360, OfSeconds: 900, Worst: []string{"s1"}}},
			Decisions: []v1alpha1.RolloutDecision{{At: at, What: "WaveStarted", Text: "wave 1 began"}}}}
}

func newFakeRollouts(f *fakeAPI) *fakeRollouts {
	r := &fakeRollouts{api: f, gets: map[string]int{}, objects: map[string]map[string]any{}, watchers: map[chan metav1.WatchEvent]string{}}
	day := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	r.put("rollouts", fakeRollout("acme-shop", "web-1", day))
	old := fakeRollout("acme-shop", "web-0", day.Add(-time.Hour))
	old.Status.Phase, old.Status.EndedAt = v1alpha1.RolloutCompleted, old.Status.StartedAt
	r.put("rollouts", old)
	fresh := fakeRollout("acme-system", "policy-1", day.Add(time.Hour))
	fresh.Status, fresh.Spec.Changes = v1alpha1.RolloutStatus{}, []v1alpha1.RolloutChange{{APIVersion: "muster.dev/v1alpha1", Kind: "HealthPolicy", Name: "default"}}
	r.put("rollouts", fresh)
	r.put("rollouts", fakeRollout("globex-shop", "web-0", day))
	r.put("rolloutstates", &v1alpha1.RolloutState{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RolloutState"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "acme-shop", Name: "web-1"}, Spec: fakeSteps})
	return r
}

// put stores and tells the watchers; f.mu is held, or nobody asks yet.
func (r *fakeRollouts) put(resource string, o metav1.Object) {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var doc map[string]any
	_ = json.Unmarshal(raw, &doc)
	r.store(o.GetNamespace()+"/"+resource+"/"+o.GetName(), doc, "ADDED")
}

func (r *fakeRollouts) store(key string, doc map[string]any, event string) {
	r.api.version++
	doc["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(r.api.version)
	r.objects[key] = doc
	r.tell(key, doc, event)
}

func (r *fakeRollouts) tell(key string, doc map[string]any, event string) {
	for ch, prefix := range r.watchers {
		if strings.HasPrefix(key, prefix) {
			ch <- watchEvent(event, doc)
		}
	}
}

// get returns a rollout as it is stored.
func (r *fakeRollouts) get(key string) v1alpha1.Rollout {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	raw, _ := json.Marshal(r.objects[key])
	var out v1alpha1.Rollout
	_ = json.Unmarshal(raw, &out)
	return out
}

// serve answers below …/namespaces/NS/RESOURCE[/NAME], or …/RESOURCE for all namespaces.
func (r *fakeRollouts) serve(w http.ResponseWriter, req *http.Request, as, ns, resource, name string) {
	f := r.api
	q := req.URL.Query()
	verb := map[string]string{"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}[req.Method]
	if watching := q.Get("watch") == "true"; verb == "get" && name == "" || watching {
		verb = "list"
		if watching {
			verb = "watch"
		}
	}
	f.mu.Lock()
	f.impersonated(req, as)
	if verb != "get" && verb != "list" && verb != "watch" {
		f.audit = append(f.audit, strings.TrimSuffix(as+" "+verb+" "+resource+" "+ns+"/"+name, "/"))
	}
	where := ns
	if where == "" {
		where = "*"
	}
	key := ns + "/" + resource + "/" + name
	have, ok := r.objects[key]
	switch {
	case !f.may(as, verb+"/"+resource, where):
		f.mu.Unlock()
		status(w, 403, metav1.StatusReasonForbidden, "User %q cannot %s resource %q in namespace %q", as, verb, resource, ns)
		return
	case verb == "watch":
		r.watch(w, req, ns+"/"+resource+"/"+strings.TrimPrefix(q.Get("fieldSelector"), "metadata.name="))
		return
	case verb == "list":
		if before := r.before; before != nil {
			f.mu.Unlock()
			before(as)
			f.mu.Lock()
		}
		r.list(w, q, ns, resource)
	case verb == "create":
		r.create(w, req, ns, resource)
	case !ok:
		status(w, 404, metav1.StatusReasonNotFound, "%s.muster.dev %q not found", resource, name)
	case verb == "patch":
		r.patch(w, req, key, have)
	case verb == "delete":
		delete(r.objects, key)
		r.tell(key, have, "DELETED")
		reply(w, 200, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	default:
		r.gets[resource]++
		reply(w, 200, have)
	}
	f.mu.Unlock()
}

// list answers with a page, as limit and continue say.
func (r *fakeRollouts) list(w http.ResponseWriter, q url.Values, ns, resource string) {
	var items []any
	more := ""
	limit, _ := strconv.Atoi(q.Get("limit"))
	for _, k := range slices.Sorted(maps.Keys(r.objects)) {
		if p := strings.Split(k, "/"); p[1] != resource || ns != "" && p[0] != ns || k < q.Get("continue") {
			continue
		}
		if limit > 0 && len(items) == limit {
			more = k
			break
		}
		items = append(items, r.objects[k])
	}
	b, _ := json.Marshal(map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": "RolloutList", "metadata": map[string]any{"continue": more}, "items": items})
	r.listed = append(r.listed, len(b))
	reply(w, 200, json.RawMessage(b))
}

func (r *fakeRollouts) create(w http.ResponseWriter, req *http.Request, ns, resource string) {
	var doc map[string]any
	if err := json.NewDecoder(req.Body).Decode(&doc); err != nil {
		r.api.t.Error(err)
	}
	if q := req.URL.Query(); q.Get("fieldManager") != fieldManager || q.Get("fieldValidation") != "Strict" {
		r.api.t.Errorf("create with %s", req.URL.RawQuery)
	}
	meta := doc["metadata"].(map[string]any)
	if prefix, _ := meta["generateName"].(string); prefix != "" {
		meta["name"] = prefix + fmt.Sprintf("%05d", r.api.version)
	}
	meta["namespace"], meta["creationTimestamp"] = ns, "2026-01-31T12:00:00Z"
	key := ns + "/" + resource + "/" + meta["name"].(string)
	spec, _ := doc["spec"].(map[string]any)
	switch {
	case r.objects[key] != nil:
		status(w, 409, metav1.StatusReasonAlreadyExists, "%s.muster.dev %q already exists", resource, meta["name"])
		return
	case spec["onFailure"] == "Explode":
		status(w, 422, metav1.StatusReasonInvalid, "Rollout is invalid: spec.onFailure: unsupported value")
		return
	case resource == "alertrules" && !r.takesRules(w, doc):
		return
	}
	if resource == "gatechecks" && r.verdict != nil {
		raw, _ := json.Marshal(r.verdict)
		var st map[string]any
		_ = json.Unmarshal(raw, &st)
		doc["status"] = st
	}
	if req.URL.Query().Get("dryRun") == "" {
		r.store(key, doc, "ADDED")
	}
	reply(w, 201, doc)
}

func (r *fakeRollouts) patch(w http.ResponseWriter, req *http.Request, key string, have map[string]any) {
	var patch map[string]any
	if err := json.NewDecoder(req.Body).Decode(&patch); err != nil {
		r.api.t.Error(err)
	}
	if r.beforePatch != nil {
		r.beforePatch(have)
	}
	if ct := req.Header.Get("Content-Type"); ct != string(types.MergePatchType) {
		r.api.t.Errorf("patch with Content-Type %q", ct)
	}
	if m, ok := patch["metadata"].(map[string]any); ok && m["resourceVersion"] != have["metadata"].(map[string]any)["resourceVersion"] {
		status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	merge(have, patch)
	r.store(key, have, "MODIFIED")
	reply(w, 200, have)
}

// watch sends what there is, then what changes; f.mu is held, and let go.
func (r *fakeRollouts) watch(w http.ResponseWriter, req *http.Request, prefix string) {
	prefix = strings.TrimPrefix(prefix, "/")
	ch := make(chan metav1.WatchEvent, 1000)
	for _, k := range slices.Sorted(maps.Keys(r.objects)) {
		if strings.HasPrefix(k, prefix) {
			ch <- watchEvent("ADDED", r.objects[k])
		}
	}
	r.watchers[ch] = prefix
	r.api.mu.Unlock()
	defer func() {
		r.api.mu.Lock()
		delete(r.watchers, ch)
		r.api.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(200)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-req.Context().Done():
			return
		case ev := <-ch:
			if json.NewEncoder(w).Encode(ev) != nil {
				return
			}
		}
	}
}
