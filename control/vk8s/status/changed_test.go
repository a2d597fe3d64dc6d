package status

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// TestASiteThatTellsOfTooManyChanges: of fields, names, words and what this version does not
// know only what is counted is kept of a site, whatever came; and other sites are told of as
// before.
func TestASiteThatTellsOfTooManyChanges(t *testing.T) {
	const objects, most = 100_000, 2_000
	limits := DefaultLimits
	limits.Workloads = most
	s := New(Options{Limits: limits, Bytes: 64 << 20})
	item := func(i int) string { return workload.ItemName("", "ConfigMap", shop, fmt.Sprint("c", i)) }
	honest := &wire.WorkloadStatus{Name: item(0), Digest: "d", Wanted: "d", State: string(workload.Ready), Drifted: true, Changed: []string{"data[a]"}}
	tell := func(site string, seq uint64, of ...*wire.WorkloadStatus) {
		t.Helper()
		b, err := proto.Marshal(&wire.KubernetesStatus{Epoch: "e", Seq: seq, After: seq - 1, Snapshot: seq == 1, Workloads: of})
		if err != nil {
			t.Fatal(err)
		}
		var m wire.KubernetesStatus // as it comes from the wire
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if !s.Apply(demo(site), &m) {
			t.Fatalf("%s: %d is not taken", site, seq)
		}
	}
	tell("rome", 1, honest)
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	seq := uint64(0)
	next := func(of ...*wire.WorkloadStatus) { seq++; tell("paris", seq, of...) }
	long := strings.Repeat("x", 256<<10)
	var of []*wire.WorkloadStatus
	for i := range objects {
		w := &wire.WorkloadStatus{Name: item(i), State: long[:100], Changed: []string{"spec"}}
		if i < 64 { // each a quarter of a MiB, in one way or the other
			switch i % 4 {
			case 0:
				w.Changed = []string{long}
			case 1:
				w.Changed = strings.Split(long[:100_000], "")
			case 2:
				w.Message, w.Reason, w.Digest, w.Wanted = long, long, long, long
			case 3:
				w.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3f, 0x80, 0x80, 0x10}, long...)) // field 1023, of 256 KiB
			}
		}
		if of = append(of, w); len(of) == 10_000 {
			next(of...)
			of = nil
		}
	}
	for i := range 64 { // names that are none
		next(&wire.WorkloadStatus{Name: fmt.Sprint("ConfigMap/", shop, "/", i, long)}, &wire.WorkloadStatus{Name: fmt.Sprint(i, long)})
	}
	counted := s.Stats()
	if counted.States != most+1 {
		t.Errorf("%d states are kept, want %d", counted.States, most+1)
	}
	// Each with its places in the maps, and what is told of those left out.
	if grew, most := heap()-before, 2*counted.Bytes+most*1024+(2<<20); grew > most {
		t.Errorf("%d KiB more are kept, want at most %d, of which %d are counted", grew>>10, most>>10, counted.Bytes>>10)
	}
	for name, w := range s.sites[demo("paris")].states {
		if len(w.Changed) > workload.MaxFields || cap(w.Changed) > workload.MaxFields || len(w.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("%s: %d fields in the room of %d", name, len(w.Changed), cap(w.Changed))
		}
		for _, field := range w.Changed {
			if len(field) > workload.MaxField {
				t.Fatalf("%s: a name of %d bytes", name, len(field))
			}
		}
	}
	if p := s.Problem(demo("paris")); p == "" || len(p) > 1000 {
		t.Errorf("what was left out is told in %d bytes", len(p))
	}
	if is := s.States(item(0))[demo("rome")]; !proto.Equal(is, honest) || s.Problem(demo("rome")) != "" {
		t.Errorf("another site is told of as %v; %s", is, s.Problem(demo("rome")))
	}
	s.Gone(demo("paris"))
	if is := s.Stats(); is.States != 1 || is.Bytes != stateBytes(honest) {
		t.Errorf("%+v are kept when it is gone", is)
	}
	runtime.KeepAlive(s)
}
