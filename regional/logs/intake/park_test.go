package intake

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/testkit"
)

// sendLines sends chunks of ten lines each.
func sendLines(t *testing.T, c net.Conn, name string, chunks int) {
	t.Helper()
	for i := range chunks {
		id := fmt.Sprint(name, i)
		if got := send(t, c, forward(id, 10, func(j int) string { return fmt.Sprint(name, " ", i, ".", j) })); got != ackOf(id) {
			t.Fatalf("ack %q", got)
		}
	}
}

func tokyosLater(r Record) bool { return r.Tenant == tokyo.Tenant }

// once wants each line of so many chunks of a tenant, one time.
func once(t *testing.T, s *memSink, tenant string, lines int) {
	t.Helper()
	seen := map[string]int{}
	for _, r := range s.all() {
		if r.Tenant == tenant {
			seen[r.Message]++
		}
	}
	if len(seen) != lines {
		t.Errorf("%s: %d lines, want %d", tenant, len(seen), lines)
	}
	for m, n := range seen {
		if n != 1 {
			t.Errorf("%s: %q is there %d times", tenant, m, n)
		}
	}
}

// TestOneTenantRefused: an index that takes nothing holds up its own tenant alone. Its
// lines are seen to wait, come again after a restart, and are stored once when it
// takes them.
func TestOneTenantRefused(t *testing.T) {
	const refused, others = 40, 300
	sink, dir := &memSink{later: tokyosLater}, t.TempDir()
	change := func(o *Options) { o.Sink, o.Dir, o.WriteLines = sink, dir, 10 }
	r := start(t, change)
	sendLines(t, r.dial(t, tokyo), "tokyo", refused)
	testkit.EventuallyTrue(t, "all of it is parked", func() bool {
		p := r.Status().Parked
		return len(p) == 1 && p[0].Loads == refused && p[0].Lines == 10*refused
	})
	sendLines(t, r.dial(t, paris), "paris", others)
	testkit.EventuallyTrue(t, "the other tenant's lines", func() bool { return sink.of("acme") == 10*others })
	st := r.Status()
	if p := st.Parked[0]; p.Tenant != "umbrella" || !strings.Contains(p.Reason, "the index is blocked") {
		t.Errorf("%+v", p)
	}
	if len(st.Conditions) != 1 || st.Conditions[0].Type != ConditionParked || !strings.Contains(st.Conditions[0].Message, "tenant umbrella") {
		t.Errorf("%+v", st.Conditions)
	}
	if loads, lines, down := testutil.ToFloat64(r.metrics.parkedLoads), testutil.ToFloat64(r.metrics.parkedLines), testutil.ToFloat64(r.metrics.storeDown); loads != refused || lines != 10*refused || down != 0 {
		t.Errorf("metrics: %v loads, %v lines, down %v", loads, lines, down)
	}
	r.stop()
	if sink.of("umbrella") != 0 {
		t.Fatal("the sink took what it refuses")
	}

	r = start(t, change)
	testkit.EventuallyTrue(t, "parked again after the restart", func() bool {
		p := r.Status().Parked
		return len(p) == 1 && p[0].Loads == refused
	})
	sink.setLater(nil)
	testkit.EventuallyTrue(t, "the queue is empty", func() bool { return r.queue.Stats().Pending == 0 })
	once(t, sink, "umbrella", 10*refused)
	once(t, sink, "acme", 10*others)
	testkit.EventuallyTrue(t, "nothing is parked", func() bool {
		st := r.Status()
		return len(st.Parked) == 0 && len(st.Conditions) == 0 && testutil.ToFloat64(r.metrics.parkedLoads) == 0
	})
}

// TestRefusedPart: of a load only what is refused is parked, and the load stays in the
// queue until all of it is taken.
func TestRefusedPart(t *testing.T) {
	sink := &memSink{later: func(r Record) bool { return strings.HasSuffix(r.Message, "7") }}
	r := start(t, func(o *Options) { o.Sink = sink })
	sendLines(t, r.dial(t, tokyo), "tokyo", 1)
	testkit.EventuallyTrue(t, "nine of ten", func() bool { return sink.count() == 9 && len(r.Status().Parked) == 1 })
	if p := r.Status().Parked[0]; p.Lines != 1 || p.Loads != 1 {
		t.Errorf("%+v", p)
	}
	if st := r.queue.Stats(); st.Pending != 1 {
		t.Errorf("%d in the queue, want the one that is not done with", st.Pending)
	}
	sink.setLater(nil)
	testkit.EventuallyTrue(t, "the queue is empty", func() bool { return r.queue.Stats().Pending == 0 })
	once(t, sink, "umbrella", 10)
	if sink.duplicates != 0 {
		t.Errorf("%d records were written again that had been taken", sink.duplicates)
	}
}

// TestParkIsBounded: what does not fit waits, and what is in its tenant's queue behind it stays
// there; the other tenants' lines pass all the while.
func TestParkIsBounded(t *testing.T) {
	const chunks = parkLoads + 30
	sink := &memSink{later: tokyosLater}
	r := start(t, func(o *Options) { o.Sink, o.WriteLines, o.Writers = sink, 10, 2 })
	c := r.dial(t, tokyo)
	sendLines(t, c, "tokyo", chunks)
	testkit.EventuallyTrue(t, "the tenant's part of the park is full", func() bool {
		st := r.Status()
		return len(st.Parked) == 1 && st.Parked[0].Loads == parkLoads*parkGreed/(1+parkGreed) && testutil.ToFloat64(r.metrics.parkedLoads) > float64(st.Parked[0].Loads)
	})
	sendLines(t, r.dial(t, paris), "paris", 50)
	testkit.EventuallyTrue(t, "the other tenant's lines", func() bool { return sink.of("acme") == 500 })
	sendLines(t, c, "more", 5)
	// In the park, stalled, in the drain's hand, and in that of its collect.
	if st := r.queue.Stats(); st.InFlight > parkLoads+2+2 || st.Pending != chunks+5 {
		t.Errorf("%+v", st)
	}
	sink.setDown(errors.New("connection refused"))
	sink.setLater(nil)
	before := sink.tries()
	testkit.EventuallyTrue(t, "some attempts", func() bool { return sink.tries() > before+10 })
	if sink.of("umbrella") != 0 {
		t.Error("stored while the store is down")
	}
	sink.setDown(nil)
	testkit.EventuallyTrue(t, "the queue is empty", func() bool { return r.queue.Stats().Pending == 0 })
	once(t, sink, "umbrella", 10*(chunks+5))
	testkit.EventuallyTrue(t, "the conditions end", func() bool {
		return len(r.Status().Conditions) == 0 && testutil.ToFloat64(r.metrics.storeDown) == 0 && testutil.ToFloat64(r.metrics.parkedLoads) == 0
	})
}

// TestParkBytes: large loads fill the park before their number does.
func TestParkBytes(t *testing.T) {
	r := start(t, nil)
	p := &park{in: r.Intake, wake: make(chan struct{}, 1)}
	n := 0
	for p.add(&load{tenant: "acme", bytes: 12 << 20}, errNotTaken) {
		n++
	}
	if n != 8 {
		t.Errorf("%d loads of 12 MiB", n)
	}
	if !p.add(&load{tenant: "umbrella", bytes: 12 << 20}, errNotTaken) {
		t.Error("no room for another tenant")
	}
	if p := (&park{in: r.Intake, wake: make(chan struct{}, 1)}); !p.add(&load{tenant: "acme", bytes: 2 * parkBytes}, errNotTaken) {
		t.Error("one large load has no room in an empty park")
	}
}
