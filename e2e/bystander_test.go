package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/remotewrite"
	"muster.dev/muster/internal/testkit"
)

// bystander is a tenant with one site, which sends a numbered line and a numbered sample at a
// time and knows what was acknowledged.
const bystander = "bystander"

func gvr(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: name}
}

// dynamic is a client of the fleet's admin.
func (f *fleet) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", f.dir+"/admin.kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return dyn
}

// makeTenant makes a tenant without anybody in it.
func makeTenant(t *testing.T, f *fleet, name string) {
	t.Helper()
	_, err := f.dynamic(t).Resource(gvr("tenants")).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "muster.dev/v1alpha1", "kind": "Tenant", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// joinSite joins a site with the name of its tenant, which has a certificate then and runs nothing. It
// returns the gateway's URL, too.
func joinSite(t *testing.T, f *fleet, tenant string) (*agent.Agent, string) {
	t.Helper()
	flags := f.joinFlags(t, "--tenant", tenant)
	dir := t.TempDir()
	if err := agent.Join(dir, agent.JoinConfig{Servers: []string{flags["--server"]}, CAHash: flags["--ca-hash"], Token: flags["--token"], Site: tenant}); err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{Dir: dir, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the site of "+tenant+" has a certificate", func() error {
		wait, err := a.Enrol(t.Context())
		if err == nil && wait > 0 {
			err = errors.New("it waits for approval")
		}
		return err
	})
	t.Cleanup(func() {
		if err := deleteSite(f.dir+"/admin.kubeconfig", tenant, tenant); err != nil {
			t.Errorf("delete the site of %s: %v", tenant, err)
		}
	})
	return a, "https://" + strings.TrimPrefix(flags["--server"], "https://")
}

// kept is what a bystander was told.
type kept struct {
	client *http.Client
	server string

	mu      sync.Mutex
	taken   map[string][]int       // by path: the numbers that were acknowledged
	refused map[string]map[int]int // by path and status
}

// run sends until ctx ends. What is not acknowledged is sent again, as senders do.
func (k *kept) run(ctx context.Context) {
	var wg sync.WaitGroup
	for path, body := range map[string]func(n int) (contentType string, b []byte){
		"/api/v1/logs": func(n int) (string, []byte) {
			return "application/json", fmt.Appendf(nil, `{"log":"number %d"}`+"\n", n)
		},
		"/api/v1/push": func(n int) (string, []byte) {
			return remotewrite.ContentTypeV2, remotewrite.EncodeV2([]remotewrite.Series{{Labels: labels.FromStrings("__name__", "bystander_number"),
				Samples: []remotewrite.Sample{{T: time.Now().UnixMilli(), V: float64(n)}}}})
		},
	} {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				contentType, b := body(n)
				for ctx.Err() == nil && !k.send(ctx, path, contentType, b, n) {
					time.Sleep(time.Second) // the pace of a sender that tries again
				}
				time.Sleep(time.Second) // the pace
			}
		})
	}
	wg.Wait()
}

func (k *kept) send(ctx context.Context, path, contentType string, body []byte, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.server+path, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", contentType)
	if strings.HasSuffix(path, "push") {
		req.Header.Set("Content-Encoding", "snappy")
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return false // late, or the end
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	k.mu.Lock()
	defer k.mu.Unlock()
	if resp.StatusCode/100 == 2 {
		k.taken[path] = append(k.taken[path], n)
		return true
	}
	if k.refused[path] == nil {
		k.refused[path] = map[int]int{}
	}
	k.refused[path][resp.StatusCode]++
	return false
}

// startBystander has the site of a tenant of its own send until check, which waits until all
// that was acknowledged is found, and fails if anything was refused.
func startBystander(t *testing.T, f *fleet) (check func()) {
	t.Helper()
	makeTenant(t, f, bystander)
	a, server := joinSite(t, f, bystander)
	k := &kept{client: a.HTTPClient(), server: server, taken: map[string][]int{}, refused: map[string]map[int]int{}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := time.Now()
	go func() { defer close(done); k.run(ctx) }()
	return func() {
		t.Helper()
		stop()
		<-done
		for path, codes := range k.refused {
			t.Errorf("%s of a neighbour was refused: %v", path, codes)
		}
		lines, samples := k.taken["/api/v1/logs"], k.taken["/api/v1/push"]
		if len(lines) == 0 || len(samples) == 0 {
			t.Errorf("%d lines and %d samples of a neighbour were taken", len(lines), len(samples))
		}
		testkit.EventuallyWithin(t, "all lines that were acknowledged are found", 2*time.Minute, func() error {
			found, err := f.bystanderLines(began)
			return missing(lines, found, err)
		})
		testkit.EventuallyWithin(t, "all samples that were acknowledged are in Cortex", 2*time.Minute, func() error {
			found, err := f.bystanderSamples(began)
			return missing(samples, found, err)
		})
		t.Logf("figure: a neighbour's %d lines and %d samples, lost: 0", len(lines), len(samples))
	}
}

// missing says which of the acknowledged numbers were not found.
func missing(taken []int, found map[int]bool, err error) error {
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(taken), func(n int) bool { return found[n] })
	if len(left) > 0 {
		return fmt.Errorf("%d of %d are missing: %v", len(left), len(taken), left)
	}
	return nil
}

func (f *fleet) bystanderLines(since time.Time) (map[int]bool, error) {
	found := map[int]bool{}
	for cursor := ""; ; {
		var p logPage
		q := url.Values{"tenant": {bystander}, "query": {""}, "limit": {"1000"}, "from": {since.Add(-time.Minute).UTC().Format(time.RFC3339)}, "cursor": {cursor}}
		if err := f.get("/api/v1/logs/search?"+q.Encode(), &p); err != nil {
			return nil, err
		}
		for _, h := range p.Hits {
			if n, err := strconv.Atoi(strings.TrimPrefix(h.Message, "number ")); err == nil {
				found[n] = true
			}
		}
		if cursor = p.NextCursor; cursor == "" {
			return found, nil
		}
	}
}

func (f *fleet) bystanderSamples(since time.Time) (map[int]bool, error) {
	r, err := f.cortexQueryOf(bystander, fmt.Sprintf("bystander_number[%ds]", int(time.Since(since).Seconds())+60))
	if err != nil {
		return nil, err
	}
	found := map[int]bool{}
	for _, series := range r.Data.Result {
		for _, v := range series.Values {
			if n, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64); err == nil {
				found[int(n)] = true
			}
		}
	}
	return found, nil
}

// heldAgainst are the conditions by which Muster says that a site is limited, or that what a
// tenant wrote does not run.
var heldAgainst = map[string]string{
	"GatewayLimits": "True", "LogBudgetExceeded": "True", "LogsAccepted": "False",
	"Applied": "False", "WithinQuotas": "False",
}

// blamed is what Muster holds against the hostile tenant, and against others, by object and
// condition.
func (f *fleet) blamed(t *testing.T) (hostile, others map[string]string) {
	t.Helper()
	dyn := f.dynamic(t)
	hostile, others = map[string]string{}, map[string]string{}
	for _, kind := range []string{"sites", "tenants", "alertrules", "logrules", "alertroutes"} {
		list, err := dyn.Resource(gvr(kind)).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			out := others
			if strings.HasPrefix(o.GetNamespace(), evil+"-") || kind == "tenants" && o.GetName() == evil {
				out = hostile
			}
			conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range conditions {
				c, _ := c.(map[string]any)
				if typ := fmt.Sprint(c["type"]); heldAgainst[typ] == fmt.Sprint(c["status"]) {
					out[fmt.Sprintf("%s %s/%s %s", kind, o.GetNamespace(), o.GetName(), typ)] = fmt.Sprintf("%v: %v", c["reason"], c["message"])
				}
			}
		}
	}
	return hostile, others
}

// assertBlameless fails if something is held against a neighbour that was not before, or
// nothing against who attacks.
func assertBlameless(t *testing.T, f *fleet, before map[string]string) {
	t.Helper()
	hostile, others := f.blamed(t)
	maps.DeleteFunc(others, func(what, _ string) bool { return before[what] != "" })
	for what, why := range others {
		t.Errorf("held against a neighbour: %s: %s", what, why)
	}
	if len(hostile) == 0 {
		t.Error("nothing is held against the hostile tenant")
	}
	for what, why := range hostile {
		t.Logf("held against the hostile tenant: %s: %.200s", what, why)
	}
}

// refusal tells whether a request was answered, and not served: what a slow machine does not
// bring about.
func refusal(err error) bool {
	var a *answerError
	return errors.As(err, &a) && a.code/100 == 4
}

// TestBystander: what the neighbour test looks at shows a loss and a refusal.
func TestBystander(t *testing.T) {
	if err := missing([]int{0, 1, 2}, map[int]bool{0: true, 2: true}, nil); err == nil || !strings.Contains(err.Error(), "1 of 3 are missing: [1]") {
		t.Errorf("one of three is lost: %v", err)
	}
	if err := missing([]int{0, 1}, map[int]bool{0: true, 1: true, 2: true}, nil); err != nil {
		t.Error(err)
	}
	for err, want := range map[error]bool{fmt.Errorf("search: %w", &answerError{code: 429}): true, &answerError{code: 504}: false, context.DeadlineExceeded: false} {
		if refusal(err) != want {
			t.Errorf("%v: refusal: %t", err, !want)
		}
	}
	codes := http.NewServeMux()
	codes.HandleFunc("/taken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	codes.HandleFunc("/refused", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	srv := httptest.NewServer(codes)
	defer srv.Close()
	k := &kept{client: srv.Client(), server: srv.URL, taken: map[string][]int{}, refused: map[string]map[int]int{}}
	if !k.send(t.Context(), "/taken", "text/plain", nil, 7) || k.send(t.Context(), "/refused", "text/plain", nil, 8) || !slices.Equal(k.taken["/taken"], []int{7}) || k.refused["/refused"][429] != 1 {
		t.Errorf("%+v", k)
	}
}
