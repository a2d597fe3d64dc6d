package status

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestEviction: a site is asked once, and what it says comes back as it is meant.
func TestEviction(t *testing.T) {
	s := twoSites(t)
	var mu sync.Mutex
	var asked []string
	cfg := serve(t, s, tunnelSite(t, func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		mu.Lock()
		asked = append(asked, req.Method+" "+req.URL.RequestURI()+" "+string(b))
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(req.URL.Path, "db-0") { // as the API server does it while a budget is looked at
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Cannot evict pod as it would violate the pod's disruption budget.","reason":"TooManyRequests","details":{"causes":[{"reason":"DisruptionBudget","message":"The disruption budget db needs 1 healthy pods and has 1 currently"}],"retryAfterSeconds":10},"code":429}`)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success","code":201}`)
	}))
	evict := func(name string, o *metav1.DeleteOptions) error {
		return kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods(shop).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: shop}, DeleteOptions: o})
	}
	err := evict("db-0-paris", nil)
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if _, again := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || !strings.Contains(cause.Message, "db needs 1 healthy") || again || !strings.Contains(err.Error(), "site paris: Cannot evict pod") {
		t.Errorf("refused by a budget: %v, %+v", err, cause)
	}
	grace := int64(7)
	if err := evict("web-6f-aaaaa", &metav1.DeleteOptions{GracePeriodSeconds: &grace, DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	other := types.UID("other")
	if err := evict("web-6f-aaaaa", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("another UID: %v", err)
	}
	if err := evict("not-there", nil); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
	if err := evict("db-0-rome", nil); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "site rome is offline") {
		t.Errorf("a site that is offline: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{
		`POST /api/v1/namespaces/demo-shop/pods/db-0/eviction {"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"db-0","namespace":"demo-shop"},"deleteOptions":{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"uid-of-db-0"}}}`,
		`POST /api/v1/namespaces/demo-shop/pods/web-6f-aaaaa/eviction {"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"web-6f-aaaaa","namespace":"demo-shop"},"deleteOptions":{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":7,"preconditions":{"uid":"uid-web-6f-aaaaa"},"dryRun":["All"]}}`,
	}
	if !slices.Equal(asked, want) {
		t.Errorf("the site was asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}
