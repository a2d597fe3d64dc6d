package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// told is what the centre makes of what the agent says of an item, as muster vk8s status reads
// it: on this site, and on one beside it where the item is ready.
func (s *site) told(item string) wire.Workload {
	s.t.Helper()
	group, kind, namespace, name, err := workload.ParseItemName(item)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	wanted := wire.DigestOf([]byte(s.want[item]))
	s.mu.Unlock()
	beside := fleet.SiteID{Tenant: s.id.Tenant, Name: "beside"}
	c := sum.New(sum.Options{
		Items: func(string) []string { return []string{item} },
		States: func(item string) map[fleet.SiteID]*wire.WorkloadStatus {
			out := map[fleet.SiteID]*wire.WorkloadStatus{beside: {Name: item, Wanted: wanted, Digest: wanted, State: string(workload.Ready)}}
			if st := s.centre.item(item); st != nil {
				out[s.id] = st
			}
			return out
		},
		Online: func(fleet.SiteID) bool { return true },
		Placed: func(string) (sum.Placement, bool) {
			return sum.Placement{Digests: map[fleet.SiteID]string{s.id: wanted, beside: wanted}}, true
		},
		Content: func(context.Context, string) ([]byte, error) { return nil, fmt.Errorf("gone") },
	})
	h := c.Handler(func(context.Context) (string, bool) { return namespace, true }, func(context.Context, schema.GroupKind, string) bool { return true })
	w := httptest.NewRecorder()
	if group != "" {
		kind += "." + group
	}
	h.ServeHTTP(w, httptest.NewRequest("GET", "/muster/workloads/"+kind+"/"+name, nil))
	var out wire.Workload
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		s.t.Fatalf("%v in %s", err, w.Body)
	}
	return out
}

// tells checks what the centre tells of an item on this site, and that it tells nothing else
// of the one beside it.
func (s *site) tells(t *testing.T, item string, state workload.State, reason string) wire.WorkloadSite {
	t.Helper()
	w := s.told(item)
	var here wire.WorkloadSite
	for _, at := range w.Sites {
		if at.Site == s.id.Name {
			here = at
		} else if at.State != string(workload.Ready) || at.Reason != "" || at.Message != "" {
			t.Errorf("%s: of the site beside: %+v", item, at)
		}
	}
	if here.State != string(state) || here.Reason != reason || len(w.Sites) != 2 || reason != "" && here.Message == "" {
		t.Errorf("%s: %+v, want %s %s", item, w.Sites, state, reason)
	}
	want := wire.WorkloadCounts{Sites: 2, Ready: 1}
	switch state {
	case workload.Ready:
		want.Ready = 2
	case workload.Waiting:
		want.Waiting = 1
	case workload.Failed:
		want.Failed = 1
	}
	if w.Counts != want {
		t.Errorf("%s: %+v, want %+v", item, w.Counts, want)
	}
	if reason != "" && (len(w.Reasons) != 1 || w.Reasons[0].Reason != reason || w.Reasons[0].Sites != 1 || w.Reasons[0].Example != s.id.Name) {
		t.Errorf("%s: reasons %+v", item, w.Reasons)
	}
	return here
}
