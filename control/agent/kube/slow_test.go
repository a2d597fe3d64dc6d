package kube_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// TestOneSlowObject: a call that gets no answer, such as of a webhook that hangs, is that
// object's trouble. The cluster stays this site's meanwhile, and everything else goes on.
func TestOneSlowObject(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.put(namespace(ns), configMap("old", "1"))
	s.is("ConfigMap/"+ns+"/old", workload.Ready, "")
	s.stop()
	var held, given atomic.Int32
	s.cfg = beforeAnd(t, s.cfg, func(_ http.ResponseWriter, req *http.Request) bool {
		hangs := req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/configmaps/hangs")
		if hangs {
			held.Add(1)
			_, _ = io.Copy(io.Discard, req.Body) // else nobody notices who goes
			<-req.Context().Done()
			given.Add(1)
		}
		return hangs
	})
	s.start()
	version := func() string {
		cm, err := s.Client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "muster-edge", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return cm.ResourceVersion
	}
	s.set(map[string]string{"ConfigMap/" + ns + "/old": "", "ConfigMap/" + ns + "/hangs": configMap("hangs", "1"), web: deployment("web", "nginx:1", 1)})
	testkit.EventuallyTrue(t, "it hangs", func() bool { return held.Load() == 1 })
	for range 2 {
		was := version()
		testkit.EventuallyTrue(t, "the claim is renewed", func() bool { return version() != was })
	}
	if n := given.Load(); n > 0 {
		t.Fatalf("the pass was over")
	}
	testkit.Eventually(t, "it says so itself", func() error {
		if st := s.centre.item("ConfigMap/" + ns + "/hangs"); st.GetReason() != "ApiServerTimeout" || st.State != string(workload.Waiting) {
			return fmt.Errorf("%v", st)
		}
		return nil
	})
	s.is(web, workload.Ready, "")
	testkit.EventuallyTrue(t, "and what was taken away is gone", func() bool { return s.configMap("old") == nil })
	if got := s.condition("KubernetesReachable"); !strings.HasPrefix(got, "True") {
		t.Errorf("the site says %q", got)
	}
}
