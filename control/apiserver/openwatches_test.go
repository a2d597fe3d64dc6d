package apiserver_test

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// open begins a watch that lasts until it is closed.
func (s sender) open(t *testing.T, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// inUse is what is held in this process, which the API server is in.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// Somebody who opens watches and never closes them may have so many; nobody else notices.
func TestOpenWatchesAreBounded(t *testing.T) {
	const path = "/api/v1/namespaces/wa-shop/configmaps"
	tenantWithUser(t, "wa", "{}")
	bindAll(t, "wa-shop", "editors", rbacv1.Subject{Kind: "Group", Name: kubeapi.Prefix + "muster:tenant:wa:editor"})
	kubeapi.WaitAllowed(t, kubeapi.Start(t), "x", []string{kubeapi.Prefix + "muster:tenant:wa:editor"}, "watch", "configmaps", "wa-shop")
	greedy, other := senderOf(t, "greedy", kubeapi.As(t, "wa-greedy", "muster:tenant:wa:editor")), senderOf(t, "other", kubeapi.As(t, "wa-other", "muster:tenant:wa:editor"))
	var first *http.Response
	before := inUse()
	for i := range apiserver.MaxWatchesEach {
		resp := greedy.open(t, path+"?watch=1")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, resp.Status)
		}
		if first == nil {
			first = resp
		}
	}
	t.Logf("%d bytes a watch, with its client's end", (inUse()-before)/apiserver.MaxWatchesEach)
	if got := greedy.send(t, http.MethodGet, path+"?watch=1", ""); got.status != http.StatusTooManyRequests || got.retry == "" || !strings.Contains(got.body, "512 watches open") {
		t.Errorf("one more: %+v", got)
	}
	if got := greedy.send(t, http.MethodGet, path, ""); got.status != http.StatusOK {
		t.Errorf("a list: %+v", got)
	}
	for _, who := range []sender{other, senderOf(t, "the administrator", kubeapi.Start(t))} {
		if resp := who.open(t, path+"?watch=1"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", who.name, resp.Status)
		}
	}
	_ = first.Body.Close()
	testkit.Eventually(t, "one that was closed makes room", func() error {
		if resp := greedy.open(t, path+"?watch=1"); resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}
