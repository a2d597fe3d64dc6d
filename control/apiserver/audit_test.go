package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"muster.dev/muster/control/vk8s"
)

// lines are a backend that keeps what it is given.
type lines struct {
	audit.Backend
	got []*auditinternal.Event
}

func (l *lines) Run(<-chan struct{}) error { return nil }
func (l *lines) Shutdown()                 {}
func (l *lines) ProcessEvents(events ...*auditinternal.Event) bool {
	l.got = append(l.got, events...)
	return true
}

func auditEvent(user string, code int32) *auditinternal.Event {
	return &auditinternal.Event{Verb: "delete", User: authnv1.UserInfo{Username: user}, RequestURI: "/api/v1/namespaces/acme-shop/configmaps/x",
		ObjectRef: &auditinternal.ObjectReference{Resource: "configmaps", Name: "x"}, ResponseStatus: &metav1.Status{Code: code}}
}

// What is refused is thinned, but who sent it and how often is told: on the next line of
// theirs, or within a minute. What changed something, or may have, has its line each.
func TestRefusedRequestsAreThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &lines{}
		a := newAuditor(out, func(namespace string) string { return strings.TrimSuffix(namespace, "-shop") }, time.Now)
		stop := make(chan struct{})
		if err := a.Run(stop); err != nil {
			t.Fatal(err)
		}
		kept := func(user string, code int32, n int) int {
			before := len(out.got)
			for range n {
				a.ProcessEvents(auditEvent(user, code))
			}
			return len(out.got) - before
		}
		if n := kept("alice", 200, 1000) + kept("alice", 500, 10); n != 1010 {
			t.Errorf("of 1010 writes %d have a line", n)
		}
		read := auditEvent("alice", 200)
		read.Verb, read.ObjectRef.Resource, read.ObjectRef.Subresource = "get", "pods", "log"
		before := len(out.got)
		for range 1000 {
			a.ProcessEvents(read)
		}
		if n := len(out.got) - before; n != refusedAtOnce {
			t.Errorf("of 1000 reads of logs %d have a line", n)
		}
		cut := *read
		cut.Annotations = map[string]string{vk8s.CutAnnotation: "why"}
		if a.ProcessEvents(&cut); out.got[len(out.got)-1].Annotations[vk8s.CutAnnotation] != "why" {
			t.Error("a log that was cut is left out")
		}
		if n := kept("alice", 429, 1000); n != refusedAtOnce {
			t.Errorf("%d of 1000 refused have a line", n)
		}
		if n := kept("bob", 403, 10); n != 10 {
			t.Errorf("of somebody else %d of 10 have one", n)
		}
		if n := kept("", 401, 1000); n != refusedAtOnce {
			t.Errorf("of nobody whom the server knows %d of 1000", n)
		}
		// However many service accounts a tenant makes, they are one.
		n := 0
		for i := range 300 {
			n += kept(fmt.Sprintf("system:serviceaccount:acme-shop:a%d", i), 404, 1)
		}
		if n != refusedAtOnce {
			t.Errorf("of 300 service accounts of a tenant %d have a line", n)
		}
		// The console's requests are those of its users.
		ev := auditEvent("muster:console", 429)
		ev.ImpersonatedUser = &authnv1.UserInfo{Username: "carol"}
		a.ProcessEvents(ev)
		if got := out.got[len(out.got)-1]; got.ImpersonatedUser == nil || got.ImpersonatedUser.Username != "carol" {
			t.Errorf("%+v", got)
		}

		time.Sleep(refusedEvery)
		kept("alice", 403, 1)
		if got := out.got[len(out.got)-1].Annotations[leftOutAnnotation]; !strings.HasPrefix(got, "900 refused requests since 2000-01-01T00:00:00Z: alice 900") {
			t.Errorf("the next line says %q", got)
		}
		time.Sleep(summedEvery)
		synctest.Wait()
		var said []string
		for _, ev := range out.got {
			if s := ev.Annotations[leftOutAnnotation]; s != "" {
				said = append(said, s)
			}
		}
		if len(said) != 4 || !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "900 reads of logs since ") }) || !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, ": nobody known 900") }) ||
			!slices.ContainsFunc(said, func(s string) bool {
				return strings.HasPrefix(s, "200 ") && strings.Contains(s, ": others 180, ") && strings.Contains(s, ":acme-shop:a")
			}) {
			t.Errorf("told within a minute: %q", said)
		}
		time.Sleep(refusedAtOnce * refusedEvery)
		synctest.Wait()
		if len(a.of) > 0 {
			t.Errorf("%d are remembered for ever", len(a.of))
		}
		close(stop)
	})
}

// A client chooses parts of a line; none of them makes it long.
func TestAuditLinesAreShort(t *testing.T) {
	long := strings.Repeat("ü", 500_000)
	ev := &auditinternal.Event{
		AuditID: "x", Verb: long, RequestURI: "/" + long, UserAgent: long, SourceIPs: slices.Repeat([]string{long}, 1000),
		ObjectRef:      &auditinternal.ObjectReference{Resource: long, Namespace: long, Name: long, APIGroup: long, APIVersion: long, Subresource: long},
		ResponseStatus: &metav1.Status{Code: 200, Message: long, Details: &metav1.StatusDetails{Name: long}},
		Annotations:    map[string]string{"x": long},
	}
	ev.AuditID = "id-" + ev.AuditID
	whole := ev.DeepCopy()
	out := &lines{}
	newAuditor(out, nil, time.Now).ProcessEvents(ev)
	if n := len(fmt.Sprintf("%+v %+v %+v", out.got[0], out.got[0].ObjectRef, out.got[0].ResponseStatus)); n > 16<<10 {
		t.Errorf("a line of %d bytes", n)
	}
	if out.got[0].SourceIPs[0] == long || !strings.HasPrefix(out.got[0].RequestURI, "/üü") || out.got[0].AuditID != "id-x" {
		t.Errorf("%.200v", out.got[0])
	}
	if ev.RequestURI != whole.RequestURI || ev.ObjectRef.Name != long || ev.ResponseStatus.Message != long || ev.Annotations["x"] != long || len(ev.SourceIPs) != 1000 {
		t.Error("the event is the server's, and was changed")
	}
}

// Seats go with the processors, up to Kubernetes' own.
func TestSeats(t *testing.T) {
	for processors, want := range map[int][2]string{1: {"100", "50"}, 2: {"100", "50"}, 4: {"200", "100"}, 64: {"400", "200"}} {
		if got := seats(processors); !slices.Equal(got, []string{"--max-requests-inflight=" + want[0], "--max-mutating-requests-inflight=" + want[1]}) {
			t.Errorf("%d processors: %v", processors, got)
		}
	}
}

// A command run in a pod is charged, and so is bounded in the audit log, also where it begins by
// a GET; to read a log is not.
func TestSessionsAreCharged(t *testing.T) {
	for sub, want := range map[string]bool{"": false, "log": false, "exec": true, "attach": true, "portforward": true} {
		if got := writes(&request.RequestInfo{Verb: "get", Resource: "pods", Subresource: sub}); got != want {
			t.Errorf("pods/%s is charged: %v", sub, got)
		}
	}
}
