package console

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func bigSite(i int) *v1alpha1.Site {
	s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("store-%06d", i), Namespace: fmt.Sprintf("tenant-%d-system", i%20), UID: types.UID(fmt.Sprintf("0b0c3a52-55a1-4d0a-8f0e-%012d", i)),
		ResourceVersion: fmt.Sprint(100000 + i), Labels: map[string]string{}, Annotations: map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "muster-control", FieldsV1: &metav1.FieldsV1{Raw: make([]byte, 2000)}}},
	}}
	for l := range 12 {
		s.Labels[fmt.Sprintf("label-%d", l)] = fmt.Sprintf("value-%d-%d", l, i)
	}
	s.Spec.Approved, s.Status.Phase = true, fleet.PhaseOnline
	for c := range 6 {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: fmt.Sprint("Type", c), Message: fmt.Sprintf("message %d of %d", c, i), LastTransitionTime: metav1.NewTime(time.Unix(int64(i), 0))})
	}
	return s
}

// TestMemoryPerSite holds what the console keeps of a site that isn't pending to a
// budget: 100,000 of them must fit into a small process.
func TestMemoryPerSite(t *testing.T) {
	const n, budget = 20_000, 1200 // bytes a site
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, siteIndexers())
	for i := range n {
		o, err := slim(bigSite(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	each := (heap() - before) / n
	t.Logf("%d bytes a site", each)
	if each > budget {
		t.Errorf("%d bytes a site, want at most %d", each, budget)
	}
	runtime.KeepAlive(store)
}
