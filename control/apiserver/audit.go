package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"muster.dev/muster/control/vk8s"
)

// auditPolicy records who changed what, and who was in which pod, which a WebSocket does by a
// GET; other reads and the traffic of the server with itself would only bury that. Bodies are
// left out: they may hold secrets.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: ["system:apiserver", "muster:control", "muster:health"]
  - level: Metadata
    resources:
      - {group: "", resources: [pods/log, pods/exec, pods/attach, pods/portforward]}
  - level: None
    verbs: [get, list, watch, head, options]
  - level: None
    resources:
      - {group: authentication.k8s.io}
      - {group: authorization.k8s.io}
      - {group: coordination.k8s.io}
      - {group: "", resources: [events]}
  - level: Metadata
`

// auditArgs keep 5 GB of lines in some 300 MB: files that are full are compressed, to a
// twentieth. A tenant that spends its whole budget of writes takes a day and a half for that.
var auditArgs = []string{"--audit-log-maxsize=50", "--audit-log-maxbackup=100", "--audit-log-compress", "--audit-log-maxage=30"}

const (
	// refusedAtOnce are lines about refused requests of one tenant's service accounts, or of
	// one person, that are kept, and one more each refusedEvery.
	refusedAtOnce = 100
	refusedEvery  = 10 * time.Second
	// summedEvery is how often what was left out is told, where nothing else tells it.
	summedEvery = time.Minute
	// maxRefusedUsers of one line are told apart.
	maxRefusedUsers = 20
	// leftOutAnnotation of a line says how many were left out, before it or with it.
	leftOutAnnotation = "muster.dev/left-out"
)

// Most bytes of what a client chooses of a line.
const (
	maxAuditURI, maxAuditText, maxAuditName, maxAuditWord = 2048, 1024, 512, 64
	maxAuditAddresses                                     = 8
)

// auditor keeps the audit log for what it is for. The log holds so many bytes, and what comes
// last pushes out what came first, so nobody may fill it with what costs them nothing: of
// requests that are refused, and of reads of pods' logs, which change nothing, a few lines are
// kept and the others counted by who sent them; and a line is no longer than it has to be. What
// changed something has a line each, and is bounded by the budget of writes.
type auditor struct {
	audit.Backend
	tenantOf func(namespace string) string
	now      func() time.Time

	mu sync.Mutex
	of map[string]*thinned // by what they are, and who sends them
}

// thinned are requests of one kind of one tenant's service accounts, or of one person.
type thinned struct {
	what  string
	pass  *rate.Limiter
	since time.Time            // when the first of these was left out
	by    map[string]int       // left out, by user
	last  *auditinternal.Event // of these
}

func newAuditor(b audit.Backend, tenantOf func(namespace string) string, now func() time.Time) *auditor {
	return &auditor{Backend: b, tenantOf: tenantOf, now: now, of: map[string]*thinned{}}
}

func thinAudit(config *app.Config, tenantOf func(namespace string) string) {
	c := &config.Aggregator.GenericConfig.Config
	c.AuditBackend = newAuditor(c.AuditBackend, tenantOf, time.Now)
}

// Run implements audit.Backend.
func (a *auditor) Run(stop <-chan struct{}) error {
	if err := a.Backend.Run(stop); err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(summedEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				a.sum()
			}
		}
	}()
	return nil
}

// Shutdown implements audit.Backend.
func (a *auditor) Shutdown() {
	a.sum()
	a.Backend.Shutdown()
}

// ProcessEvents implements audit.Sink.
func (a *auditor) ProcessEvents(events ...*auditinternal.Event) bool {
	ok := true
	for _, ev := range events {
		if ev = a.thin(shortened(ev)); ev != nil {
			ok = a.Backend.ProcessEvents(ev) && ok
		}
	}
	return ok
}

// thin returns the event, perhaps with what was left out before it, or nil if it is left out.
func (a *auditor) thin(ev *auditinternal.Event) *auditinternal.Event {
	what := "refused requests"
	// A server's own failure may have changed something all the same.
	if st := ev.ResponseStatus; st == nil || st.Code < 400 || st.Code >= 500 {
		if ev.ObjectRef == nil || ev.ObjectRef.Resource != "pods" || ev.ObjectRef.Subresource != "log" || ev.Annotations[vk8s.CutAnnotation] != "" {
			return ev
		}
		what = "reads of logs"
	}
	user := ev.User.Username
	if ev.ImpersonatedUser != nil {
		user = ev.ImpersonatedUser.Username
	}
	who := user // "": nobody whom the server knows
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		who = "tenant:" + cmp.Or(a.tenantOf(namespace), namespace)
	}
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	key := what + " of " + who
	r := a.of[key]
	if r == nil {
		r = &thinned{what: what, pass: rate.NewLimiter(rate.Every(refusedEvery), refusedAtOnce), by: map[string]int{}}
		a.of[key] = r
	}
	if r.pass.AllowN(now, 1) {
		return r.told(ev)
	}
	if len(r.by) == 0 {
		r.since = now
	}
	if _, known := r.by[user]; !known && len(r.by) >= maxRefusedUsers {
		user = "others"
	}
	r.by[user]++
	r.last = ev
	return nil
}

// told adds to an event what was left out before it.
func (r *thinned) told(ev *auditinternal.Event) *auditinternal.Event {
	if len(r.by) == 0 {
		return ev
	}
	all, users := 0, []string{}
	for _, user := range slices.SortedFunc(maps.Keys(r.by), func(x, y string) int { return cmp.Or(r.by[y]-r.by[x], cmp.Compare(x, y)) }) {
		all += r.by[user]
		users = append(users, fmt.Sprintf("%s %d", cmp.Or(user, "nobody known"), r.by[user]))
	}
	out := *ev
	out.Annotations = maps.Clone(ev.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[leftOutAnnotation] = fmt.Sprintf("%d %s since %s: %s", all, r.what, r.since.UTC().Format(time.RFC3339), strings.Join(users, ", "))
	clear(r.by)
	r.last = nil
	return &out
}

// sum tells what was left out of those who have been quiet since, and forgets who was not
// refused for a while. The line is the last one of them.
func (a *auditor) sum() {
	now := a.now()
	var lines []*auditinternal.Event
	a.mu.Lock()
	for key, r := range a.of {
		if r.last != nil {
			lines = append(lines, r.told(r.last))
		}
		if r.pass.TokensAt(now) >= refusedAtOnce {
			delete(a.of, key)
		}
	}
	a.mu.Unlock()
	if len(lines) > 0 {
		a.Backend.ProcessEvents(lines...)
	}
}

// shortened is a copy of an event whose parts are no longer than they have to be. Some of
// them the client chooses, up to a megabyte of each.
func shortened(ev *auditinternal.Event) *auditinternal.Event {
	out := *ev
	out.AuditID = types.UID(cut(string(ev.AuditID), maxAuditWord))
	out.Verb, out.RequestURI, out.UserAgent = cut(ev.Verb, maxAuditWord), cut(ev.RequestURI, maxAuditURI), cut(ev.UserAgent, maxAuditName)
	// The last ones are those that proxies and we have seen.
	out.SourceIPs = slices.Clone(ev.SourceIPs[max(0, len(ev.SourceIPs)-maxAuditAddresses):])
	for i, ip := range out.SourceIPs {
		out.SourceIPs[i] = cut(ip, maxAuditWord)
	}
	if ev.ObjectRef != nil {
		ref := *ev.ObjectRef
		for _, s := range []*string{&ref.Resource, &ref.Namespace, &ref.Name, &ref.APIGroup, &ref.APIVersion, &ref.ResourceVersion, &ref.Subresource} {
			*s = cut(*s, maxAuditName)
		}
		ref.UID = types.UID(cut(string(ref.UID), maxAuditName))
		out.ObjectRef = &ref
	}
	if ev.ResponseStatus != nil {
		st := *ev.ResponseStatus
		st.Message, st.Details = cut(st.Message, maxAuditText), nil // which repeat the message
		out.ResponseStatus = &st
	}
	out.Annotations = maps.Clone(ev.Annotations)
	for k, v := range out.Annotations {
		out.Annotations[k] = cut(v, maxAuditText)
	}
	return &out
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
