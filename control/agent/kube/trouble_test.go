package kube_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// before puts a proxy before the API server of cfg, which refuses changes while readOnly.
func before(t *testing.T, cfg *rest.Config, readOnly *atomic.Bool) *rest.Config {
	t.Helper()
	return beforeAnd(t, cfg, func(w http.ResponseWriter, req *http.Request) bool {
		if !readOnly.Load() || req.Method == http.MethodGet {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","message":"etcdserver: mvcc: database space exceeded","code":500}`)
		return true
	})
}

// beforeAnd puts a proxy before the API server of cfg, which passes on what does does not see to.
func beforeAnd(t *testing.T, cfg *rest.Config, does func(http.ResponseWriter, *http.Request) bool) *rest.Config {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval, proxy.ErrorLog = transport, -1, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !does(w, req) {
			proxy.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &rest.Config{Host: server.URL}
}

// TestAReadOnlyAPIServer: a cluster that answers and takes no changes, and one that runs
// more pods than are mirrored, are told as one condition each; nothing else is disturbed,
// and it ends by itself.
func TestAReadOnlyAPIServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.stop()
	var readOnly atomic.Bool
	s.cfg = before(t, s.cfg, &readOnly)
	s.start()
	s.put(namespace(ns), deployment("web", "nginx:1", 2))
	s.is(web, workload.Ready, "")
	// Pods come by a watch of their own, and may be later than what is ready by the Deployment's.
	testkit.EventuallyTrue(t, "its pods are shown", func() bool { return len(s.centre.pods(ns)) == 2 })

	readOnly.Store(true)
	s.put(configMap("settings", "1"))
	testkit.Eventually(t, "the site says so", func() error {
		if c := s.condition(kube.Reachable); !strings.HasPrefix(c, "False ApiServerReadOnly") || !strings.Contains(c, "database space exceeded") {
			return fmt.Errorf("%s", c)
		}
		return nil
	})
	s.is(apiMap, workload.Waiting, "ApiServerReadOnly")
	// What the cluster does is shown all the same.
	gone := s.centre.pods(ns)[0].Name
	if err := s.Client.CoreV1().Pods(ns).Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.EventuallyTrue(t, "another pod is shown instead", func() bool {
		pods := s.centre.pods(ns)
		return len(pods) == 2 && pods[0].Name != gone && pods[1].Name != gone
	})
	if st := s.centre.item(web); st.Digest == "" || st.Reason == "ApiServerReadOnly" {
		t.Errorf("what is in effect: %v", st)
	}
	readOnly.Store(false)
	s.is(apiMap, workload.Ready, "")
	s.is(web, workload.Ready, "")
	testkit.EventuallyTrue(t, "the site is well", func() bool { return strings.HasPrefix(s.condition(kube.Reachable), "True") })
	if n := s.deployment("web").Generation; n != 1 {
		t.Errorf("the Deployment was changed: generation %d", n)
	}

	// More pods than are mirrored.
	s.stop()
	s.start(func(o *kube.Options) { o.MaxPods = 2 })
	s.put(deployment("web", "nginx:1", 5))
	if st := s.is(web, workload.Ready, ""); !strings.Contains(string(st.Status), `"readyReplicas":5`) {
		t.Errorf("all of them count: %s", st.Status)
	}
	testkit.Eventually(t, "the site says what it leaves out", func() error {
		if c := s.condition(kube.Mirrored); !strings.HasPrefix(c, "False TooMany only 2 of 5 pods") || len(s.centre.pods(ns)) != 2 {
			return fmt.Errorf("%s, %d pods", c, len(s.centre.pods(ns)))
		}
		return nil
	})
	testkit.Eventually(t, "the cluster is well all the same", func() error { // a probe may be late on a busy machine
		if c := s.condition(kube.Reachable); !strings.HasPrefix(c, "True") {
			return fmt.Errorf("%s", c)
		}
		return nil
	})
	s.put(deployment("web", "nginx:1", 1))
	testkit.Eventually(t, "it ends when there is room", func() error {
		pods, err := s.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if c := s.condition(kube.Mirrored); err != nil || !strings.HasPrefix(c, "True") || len(pods.Items) != 1 || len(s.centre.pods(ns)) != 1 || s.centre.pods(ns)[0].Name != pods.Items[0].Name {
			return fmt.Errorf("%s, %d pods, %d shown, %w", c, len(pods.Items), len(s.centre.pods(ns)), err)
		}
		return nil
	})
}
