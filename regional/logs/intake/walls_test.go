package intake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/regional/logs/store"
)

// postAs sends one body as a site and returns the status and the text.
func (r *running) postAs(t testing.TB, id fleet.SiteID, body string) (int, string, http.Header) {
	t.Helper()
	return r.postTo(t, r.http(t, id), "application/x-ndjson", "", "", []byte(body))
}

// before counts the records that were stored before the first one with this message.
func (s *memSink) before(message string) (int, bool) {
	i := slices.IndexFunc(s.all(), func(r Record) bool { return r.Message == message })
	return i, i >= 0
}

// TestFloodDelaysOnlyItself: a site inside its byte budget fills the queue with tiny
// lines while the store is away; a neighbour's line, of another tenant or of the same
// one, that comes after all of them is stored after a few writes, and not after the flood.
func TestFloodDelaysOnlyItself(t *testing.T) {
	r := start(t, nil)
	r.sink.setDown(errors.New("away"))
	const flood = 200_000
	if code, text, _ := r.postAs(t, paris, strings.Repeat("{\"log\":\"x\"}\n", flood)); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	for _, id := range []fleet.SiteID{tokyo, berlin} {
		if code, text, _ := r.postAs(t, id, `{"log":"from `+id.Name+`"}`); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	r.sink.setDown(nil)
	testkit.EventuallyTrue(t, "the neighbours' lines are stored", func() bool {
		_, a := r.sink.before("from tokyo")
		_, b := r.sink.before("from berlin")
		return a && b
	})
	for _, name := range []string{"tokyo", "berlin"} {
		if n, _ := r.sink.before("from " + name); n > 12*r.opts.WriteLines {
			t.Errorf("%d lines of the flood were stored before %s's line", n, name)
		} else {
			t.Logf("%d lines before %s's", n, name)
		}
	}
	testkit.EventuallyTrue(t, "the flood is stored too", func() bool { return r.sink.count() == flood+2 })
}

// TestLinesHaveABudget: tiny lines use up a site's budget though their bytes would not,
// and a policy's other limits go with it.
func TestLinesHaveABudget(t *testing.T) {
	r := start(t, nil)
	const lines = 8 << 20 / 12
	if code, text, _ := r.postAs(t, paris, strings.Repeat("{\"log\":\"x\"}\n", lines)); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	code, text, header := r.postAs(t, paris, `{"log":"one more"}`)
	if after, _ := strconv.Atoi(header.Get("Retry-After")); code != 429 || !strings.Contains(text, "budget") || after < 60 {
		t.Errorf("%d %s, Retry-After %q", code, text, header.Get("Retry-After"))
	}
	if conds := r.Status().Conditions; len(conds) != 1 || conds[0].Type != ConditionOverBudget || conds[0].Site != paris {
		t.Errorf("%+v", conds)
	}
	if code, text, _ := r.postAs(t, berlin, `{"log":"a neighbour's"}`); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	now := time.Now()
	s := newSite(paris, SiteLimits{BytesPerSecond: 1 << 20, LinesPerSecond: 1000}.withDefaults())
	s.pay(now, 0, 30_000)
	if d := s.debt(now); d != 0 {
		t.Errorf("debt %s at the end of the burst", d)
	}
	s.pay(now, 0, 5000)
	if d := s.debt(now).Round(time.Second); d != 5*time.Second {
		t.Errorf("debt %s for 5,000 lines at 1,000 a second", d)
	}
	if l := (SiteLimits{BytesPerSecond: 4 << 20}).withDefaults(); l.LinesPerSecond != 8192 {
		t.Errorf("%d lines a second for 4 MiB/s", l.LinesPerSecond)
	}
}

// TestQueueIsShared: while the store is away a tenant, or one site of it, fills its part of the
// disk queue and no more; its neighbours' lines are acknowledged and stored.
func TestQueueIsShared(t *testing.T) {
	noise := func(n int) string { // what does not compress
		b := make([]byte, n/2)
		_, _ = rand.Read(b)
		return fmt.Sprintf(`{"log":"%x"}`, b)
	}
	r := start(t, func(o *Options) { o.QueueBytes = 1 << 20 })
	r.sink.setDown(errors.New("away"))
	fill := func(id fleet.SiteID) (n int) {
		for ; ; n++ {
			code, text, _ := r.postAs(t, id, noise(20_000))
			if code == 503 && strings.Contains(text, errQueueFull.Error()) {
				return n
			}
			if code != 200 || n > 1000 {
				t.Fatalf("%s: %d %s after %d", id, code, text, n)
			}
		}
	}
	greedy, neighbour, other := fill(paris), fill(berlin), fill(tokyo)
	t.Logf("%d messages of one site, then %d of its neighbour, then %d of another tenant", greedy, neighbour, other)
	if neighbour == 0 || other == 0 {
		t.Error("no room for the neighbours")
	}
	if st := r.queue.Stats(); st.DiskBytes > 1<<20 {
		t.Errorf("%d bytes on disk", st.DiskBytes)
	}
	full := map[fleet.SiteID]bool{}
	for _, c := range r.Status().Conditions {
		if c.Type == ConditionQueueFull {
			full[c.Site] = true
		}
	}
	if len(full) != 3 {
		t.Errorf("%v have the condition of a full queue", full)
	}
	r.sink.setDown(nil)
	testkit.EventuallyTrue(t, "all is stored", func() bool { return r.sink.count() >= greedy+neighbour+other && r.queue.Stats().Pending == 0 })
	if code, text, _ := r.postAs(t, paris, noise(20_000)); code != 200 {
		t.Errorf("%d %s after the queue was emptied", code, text)
	}
	r.tendSites(time.Now().Add(time.Minute))
	if conds := r.Status().Conditions; len(conds) != 0 {
		t.Errorf("%+v", conds)
	}
}

// TestMemoryIsSharedByTenant: many sites of one tenant that each hold what a site may
// leave room for another tenant's messages.
func TestMemoryIsSharedByTenant(t *testing.T) {
	m := newMemory(512<<20, 62<<20)
	soon, cancel := context.WithCancel(context.Background())
	cancel()
	held := 0
	for i := range 100 {
		s := newSite(fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("s", i)}, SiteLimits{}.withDefaults())
		for m.take(soon, s, 1<<20) == nil {
			held++
		}
	}
	if held != 256 {
		t.Errorf("one tenant holds %d MiB of 512", held)
	}
	for i := range 2 {
		if err := m.take(soon, newSite(fleet.SiteID{Tenant: fmt.Sprint("t", i), Name: "a"}, SiteLimits{}.withDefaults()), 62<<20); err != nil {
			t.Errorf("a message of the largest size of tenant %d: %v", i, err)
		}
	}
}

// TestTenantQuota: over all of its sites a tenant has no more queued in a day than its
// quota, over HTTP and the forward protocol; its sites say so, others notice nothing; a
// restart forgets nothing, and the next day begins at 0.
func TestTenantQuota(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Date(2026, 11, 22, 22, 0, 0, 0, time.UTC).UnixNano())
	var limit atomic.Int64
	limit.Store(10_000)
	dir := t.TempDir()
	change := func(o *Options) {
		o.Dir, o.MaxDelay = dir, 200*time.Millisecond
		o.Now = func() time.Time { return time.Unix(0, now.Load()) }
		o.TenantLogBytesPerDay = func(tenant string) int64 {
			if tenant == "acme" {
				return limit.Load()
			}
			return 0
		}
	}
	body := `{"log":"` + strings.Repeat("x", 3900) + `"}`
	r := start(t, change)
	for _, id := range []fleet.SiteID{paris, berlin} {
		if code, text, _ := r.postAs(t, id, body); code != 200 {
			t.Fatalf("%d %s", code, text)
		}
	}
	want := 2 * int64(len(body)+lineBytes)
	check := func(r *running, want int64) {
		t.Helper()
		if got := r.TenantLogUsage("acme"); got != (Usage{"2026-11-22", want, limit.Load()}) {
			t.Errorf("%+v, want %d bytes", got, want)
		}
	}
	check(r, want)
	r.stop()
	r = start(t, change)
	check(r, want)
	code, text, header := r.postAs(t, berlin, body)
	if after, _ := strconv.Atoi(header.Get("Retry-After")); code != 429 || !strings.Contains(text, "quotas.logBytesPerDay") || after != 7200 {
		t.Errorf("%d %s, Retry-After %q", code, text, header.Get("Retry-After"))
	}
	c := r.dial(t, paris)
	if _, err := c.Write(forward("x", 1, func(int) string { return body })); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	check(r, want)
	if code, text, _ := r.postAs(t, tokyo, body); code != 200 {
		t.Errorf("another tenant: %d %s", code, text)
	}
	over := map[fleet.SiteID]bool{}
	for _, c := range r.Status().Conditions {
		if c.Type == ConditionOverQuota {
			over[c.Site] = true
		}
	}
	if !over[paris] || !over[berlin] || len(over) != 2 {
		t.Errorf("%v have the condition", over)
	}
	if n := testutil.ToFloat64(r.metrics.refused.WithLabelValues("quota")); n != 2 {
		t.Errorf("%v refusals counted", n)
	}
	// A message that is not queued costs nothing.
	limit.Store(20_000)
	r.tendSites(time.Unix(0, now.Load()))
	if conds := r.Status().Conditions; len(conds) != 0 {
		t.Errorf("%+v with a larger quota", conds)
	}
	_ = r.queue.Close()
	if code, _, _ := r.postAs(t, paris, body); code != 503 {
		t.Errorf("%d without a queue", code)
	}
	check(r, want)
	now.Add(int64(2 * time.Hour))
	if got := r.TenantLogUsage("acme"); got != (Usage{"2026-11-23", 0, 20_000}) {
		t.Errorf("%+v on the next day", got)
	}
}

// TestUsageFileIsDamaged: the intake starts, and counts from 0.
func TestUsageFileIsDamaged(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"", "{", "[]", `{"day":"2026-11-22","tenants":{"acme":"x"}}`} {
		if err := os.WriteFile(filepath.Join(dir, "usage.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, func(o *Options) { o.Dir = dir })
		if u := r.TenantLogUsage("acme"); u.Bytes != 0 {
			t.Errorf("%+v", u)
		}
		r.stop()
	}
}

// TestParkedLineLeavesRoom: a line that the store refuses for hours keeps its own place in the
// queue, and not that of all that came after it.
func TestParkedLineLeavesRoom(t *testing.T) {
	sink := &memSink{later: func(r Record) bool { return r.Message == "refused" }}
	r := start(t, func(o *Options) { o.QueueBytes, o.Sink = 1<<20, sink })
	r.sink = sink
	if code, text, _ := r.postAs(t, tokyo, `{"log":"refused"}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	testkit.EventuallyTrue(t, "it is parked", func() bool { return len(r.Status().Parked) == 1 })
	b := make([]byte, 20_000)
	for i := range 100 {
		_, _ = rand.Read(b)
		if code, text, _ := r.postAs(t, tokyo, fmt.Sprintf(`{"log":"%x"}`, b)); code != 200 {
			t.Fatalf("message %d: %d %s, %+v", i, code, text, r.queue.Stats())
		}
		testkit.EventuallyTrue(t, "the store has it", func() bool { return r.sink.count() == i+1 })
	}
	if st := r.queue.Stats(); st.Pending != 1 || st.DiskBytes > 1<<20 {
		t.Errorf("%+v", st)
	}
	r.sink.setLater(nil)
	testkit.EventuallyTrue(t, "it is stored", func() bool { return r.sink.count() == 101 && r.queue.Stats().Pending == 0 })
}

// TestReadingTakesTurns: a tenant that has its processors in use reads its lines when it
// is through; another one does not wait for that, and nobody keeps a processor.
func TestReadingTakesTurns(t *testing.T) {
	p := turns.NewProcessors(1)
	r := start(t, func(o *Options) { o.Processors = p })
	held, err := p.Begin(t.Context(), turns.Class{Tenant: paris.Tenant})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan int, 1)
	go func() {
		code, _, _ := r.postAs(t, paris, strings.Repeat(`{"log":"from paris"}`+"\n", 5000))
		waits <- code
	}()
	testkit.EventuallyTrue(t, "paris waits", func() bool { _, _, n := p.Use(); return n == 1 })
	if code, text, _ := r.postAs(t, tokyo, `{"log":"from tokyo"}`); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if len(waits) > 0 {
		t.Error("paris has more processors than a tenant has")
	}
	held.End()
	if code := <-waits; code != 200 {
		t.Errorf("paris: %d", code)
	}
	if platform, tenants, waiting := p.Use(); platform+tenants+waiting > 0 {
		t.Errorf("kept: %d, %d, %d", platform, tenants, waiting)
	}
}

// TestLinesOlderThanTheRetention: a site that sends lines that the store would refuse for their
// age makes no dead letters of them. A clock that is years off is mended as before.
func TestLinesOlderThanTheRetention(t *testing.T) {
	var now time.Time
	sink := &memSink{dead: func(r Record) string {
		if r.Timestamp.Before(store.Day(now.Add(-7 * 24 * time.Hour))) {
			return "older than the retention"
		}
		return ""
	}}
	r := start(t, func(o *Options) { now = time.Now(); o.Retention, o.Sink = 7*24*time.Hour, sink })
	body := ""
	for days, text := range []string{"today", "", "", "", "", "", "", "kept", "late", "late", "late"} {
		if text != "" {
			body += fmt.Sprintf(`{"date":%d,"log":"%s %d"}`+"\n", now.AddDate(0, 0, -days).Unix(), text, days)
		}
	}
	body += `{"date":1000000,"log":"a clock without a battery"}` + "\n"
	if code, text, _ := r.postAs(t, paris, body); code != 200 || !strings.Contains(text, `"accepted":3,"dropped":3`) {
		t.Errorf("%d %s", code, text)
	}
	testkit.EventuallyTrue(t, "what is kept is stored", func() bool { return sink.count() == 3 && r.queue.Stats().Pending == 0 })
	if n := r.Status().DeadLetters; n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if n := testutil.ToFloat64(r.metrics.dropped.WithLabelValues("too_old")); n != 3 {
		t.Errorf("%v lines are counted as too old", n)
	}
}

// TestTheRegionalBoundsBudgets: a tenant's policy lets its sites send no more than the regional
// says, and whoever runs into that is told so.
func TestTheRegionalBoundsBudgets(t *testing.T) {
	r := start(t, func(o *Options) {
		o.SiteBytesPerSecond, o.MaxDelay = 1<<10, 100*time.Millisecond
		o.Limits = func(fleet.SiteID) SiteLimits { return SiteLimits{BytesPerSecond: 1 << 40} }
	})
	body := `{"log":"` + strings.Repeat("x", 60_000) + `"}` + "\n"
	code := 200
	for range 10 {
		if code, _, _ = r.postAs(t, paris, body); code == 429 {
			break
		}
	}
	if code != 429 {
		t.Fatalf("%d after 600 kB at 1 KiB a second", code)
	}
	if conds := r.Status().Conditions; len(conds) != 1 || !strings.Contains(conds[0].Message, "budget of 1024 bytes and") || !strings.Contains(conds[0].Message, "limited by the regional: its policy asks for 1099511627776 bytes") {
		t.Errorf("%+v", conds)
	}
}
