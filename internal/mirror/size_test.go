package mirror

import (
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

// TestAllThatASiteSaysOfAnItemCounts: no field of it, known or not, is kept beyond the bounds.
func TestAllThatASiteSaysOfAnItemCounts(t *testing.T) {
	const most = 4 << 10
	long := strings.Repeat("x", most)
	unknown := &wire.WorkloadStatus{}
	unknown.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3f, 0x80, 0x20}, long...)) // field 1023, of 4 KiB
	for what, w := range map[string]*wire.WorkloadStatus{
		"one changed field":   {Changed: []string{long}},
		"many changed fields": {Changed: make([]string, most/16)},
		"state":               {State: long},
		"reason":              {Reason: long},
		"message":             {Message: long},
		"status":              {Status: []byte(long)},
		"unknown":             unknown,
	} {
		m := New(Limits{Objects: 10, Bytes: 1 << 20, Object: most}, nil)
		w.Name = "ConfigMap/demo-shop/c"
		small := &wire.WorkloadStatus{Name: "ConfigMap/demo-shop/small", Changed: []string{"data[a]"}}
		if !m.Apply(&wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true, Workloads: []*wire.WorkloadStatus{w, small}}) {
			t.Fatalf("%s: not taken", what)
		}
		if n := len(m.objects); n != 1 || m.bytes > most || m.left.Len() != 1 {
			t.Errorf("%s: %d objects of %d bytes are kept, %d left out", what, n, m.bytes, m.left.Len())
		}
	}
}
