package wire_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// As many items as a site takes fit into one message, however long Kubernetes lets their names be.
func TestAllItemsOfASiteFitIntoAMessage(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	d := &wire.DesiredState{Revision: long(64)}
	for i := range wire.MaxItems {
		name := workload.ItemName(long(253), long(63), long(63), fmt.Sprintf("%0253d", i))
		d.Items = append(d.Items, &wire.Item{Kind: workload.Kind, Name: name, Digest: long(64), Size: math.MaxInt32})
	}
	if n := proto.Size(&wire.ToSite{Msg: &wire.ToSite_Desired{Desired: d}}); n > wire.MaxDown {
		t.Errorf("%d bytes, and a message has %d at most", n, wire.MaxDown)
	}
}
