package intake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/regional/logs/store"
)

// TestStoreDown: the store is away for a while. Everything acknowledged arrives when
// it is back, once, and a condition says so meanwhile.
func TestStoreDown(t *testing.T) {
	conds := make(chan Condition, 100)
	r := start(t, func(o *Options) { o.OnCondition = func(c Condition) { conds <- c } })
	r.sink.setDown(errors.New("connection refused"))
	c := r.dial(t, paris)
	for i := range 50 {
		id := fmt.Sprint("chunk", i)
		if got := send(t, c, forward(id, 20, func(j int) string { return fmt.Sprint(i, " ", j) })); got != ackOf(id) {
			t.Fatalf("ack %q", got)
		}
	}
	if cond := <-conds; cond.Type != ConditionStoreDown || !cond.Active || !strings.Contains(cond.Message, "connection refused") {
		t.Errorf("%+v", cond)
	}
	if n := r.sink.count(); n != 0 {
		t.Fatalf("%d records in a store that is down", n)
	}
	r.sink.setDown(nil)
	testkit.EventuallyTrue(t, "all lines", func() bool { return r.sink.count() == 1000 && r.queue.Stats().Pending == 0 })
	testkit.EventuallyTrue(t, "the condition ends", func() bool { return len(r.Status().Conditions) == 0 })
	if r.sink.duplicates != 0 {
		t.Errorf("%d duplicates", r.sink.duplicates)
	}
}

// TestQueueFull: at the cap nothing is acknowledged, the connection closes within
// MaxDelay, a request gets 503, and what was acknowledged before is not dropped.
func TestQueueFull(t *testing.T) {
	conds := make(chan Condition, 100)
	r := start(t, func(o *Options) {
		o.QueueBytes, o.MaxDelay = 64<<10, 300*time.Millisecond
		o.OnCondition = func(c Condition) { conds <- c }
	})
	r.sink.setDown(errors.New("down"))
	noise := func(i int) func(int) string { // what does not compress
		return func(j int) string { return fmt.Sprintf("%x", nonce()) + fmt.Sprint(i, j) }
	}
	acked := 0
	for i := 0; ; i++ {
		c := r.dial(t, paris)
		id := fmt.Sprint("chunk", i)
		if _, err := c.Write(forward(id, 100, noise(i))); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		_ = c.Close()
		if err != nil {
			break // closed without an ack
		}
		if string(buf[:n]) != ackOf(id) {
			t.Fatalf("ack %q", buf[:n])
		}
		acked += 100
		if i > 1000 {
			t.Fatal("never full")
		}
	}
	var body strings.Builder
	for j := range 500 {
		fmt.Fprintf(&body, "{\"log\":%q}\n", noise(0)(j))
	}
	resp, err := r.http(t, paris).Post(r.url, "application/x-ndjson", strings.NewReader(body.String()))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("HTTP %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	for cond := range conds {
		if cond.Type == ConditionQueueFull {
			break
		}
	}
	if st := r.queue.Stats(); st.DiskBytes > 64<<10 {
		t.Errorf("the queue takes %d bytes", st.DiskBytes)
	}
	before := acked
	r.sink.setDown(nil)
	testkit.EventuallyTrue(t, "the queue drains", func() bool { return r.queue.Stats().Pending == 0 })
	if n := r.sink.count(); n < before {
		t.Errorf("%d lines stored, %d acknowledged", n, before)
	}
	if got := send(t, r.dial(t, paris), forward("after", 1, noise(0))); got != ackOf("after") {
		t.Errorf("ack %q", got)
	}
}

// TestDeadLetters: what the store refuses for good is kept with the reason, what it
// can't take now is written again, and the rest is stored.
func TestDeadLetters(t *testing.T) {
	r := start(t, func(o *Options) {
		r2 := &memSink{dead: func(rec Record) string {
			if strings.HasPrefix(rec.Message, "bad") {
				return "mapper_parsing_exception"
			}
			return ""
		}}
		o.Sink = &flaky{memSink: r2}
	})
	sink := r.opts.Sink.(*flaky)
	if got := send(t, r.dial(t, paris), forward("c", 30, func(i int) string { return []string{"good", "bad", "late"}[i%3] + fmt.Sprint(i) })); got != ackOf("c") {
		t.Fatalf("ack %q", got)
	}
	testkit.EventuallyTrue(t, "all done", func() bool { return sink.count() == 20 && r.queue.Stats().Pending == 0 })
	b, err := os.ReadFile(filepath.Join(r.opts.Dir, "dead-letters", "acme.000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(lines) != 10 {
		t.Fatalf("%d dead letters, want 10", len(lines))
	}
	var l deadLetter
	if err := json.Unmarshal(lines[0], &l); err != nil || l.Reason != "mapper_parsing_exception" || l.Record.Message != "bad1" || l.Record.Site != "paris" {
		t.Errorf("%v %+v", err, l)
	}
	if sink.duplicates != 0 {
		t.Errorf("%d records were written again that had been taken", sink.duplicates)
	}
}

// flaky puts some records off for a while.
type flaky struct {
	*memSink
	tries atomic.Int32
}

func (f *flaky) Write(ctx context.Context, records []Record) (store.Result, error) {
	if f.tries.Add(1) > 5 {
		return f.memSink.Write(ctx, records)
	}
	var res store.Result
	for i, r := range records {
		if strings.HasPrefix(r.Message, "late") {
			res.Retry = append(res.Retry, store.Failure{Index: i, Reason: "429"})
			continue
		}
		one, _ := f.memSink.Write(ctx, []Record{r})
		res.Stored += one.Stored
		for _, d := range one.Dead {
			res.Dead = append(res.Dead, store.Failure{Index: i, Reason: d.Reason})
		}
	}
	return res, nil
}

func TestDeadLetterFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	d, err := openDeadLetters(disk.OS{}, dir, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := d.add("acme", []deadLetter{{Reason: strings.Repeat("r", 100)}}); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		st, _ := e.Info()
		total += st.Size()
	}
	if total > 20_000 || total < 10_000 {
		t.Errorf("%d bytes in %d files", total, len(entries))
	}
}

// What one tenant's sites make undeliverable pushes out its own dead letters, and those of
// nobody who has less; also after a restart.
func TestDeadLettersAreSharedByTenant(t *testing.T) {
	dir := t.TempDir()
	add := func(d *deadLetters, tenant string, n int) {
		t.Helper()
		for i := range n {
			if err := d.add(tenant, []deadLetter{{Reason: fmt.Sprintf("%0100d", i)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	d, err := openDeadLetters(disk.OS{}, dir, 40_000)
	if err != nil {
		t.Fatal(err)
	}
	add(d, "umbrella", 20)
	add(d, "acme", 400)
	if d, err = openDeadLetters(disk.OS{}, dir, 40_000); err != nil {
		t.Fatal(err)
	}
	add(d, "acme", 400)
	lines, total := map[string]int{}, 0
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		tenant, _, _ := strings.Cut(e.Name(), ".")
		lines[tenant] += bytes.Count(b, []byte("\n"))
		total += len(b)
	}
	if lines["umbrella"] != 20 || lines["acme"] < 100 || total > 40_000 {
		t.Errorf("%v, %d bytes together", lines, total)
	}
}

// fileSink is a store on disk: one JSON line a record, written through before Write
// returns.
type fileSink struct{ f *os.File }

func (s fileSink) Write(_ context.Context, records []Record) (store.Result, error) {
	var b []byte
	for _, r := range records {
		line, _ := json.Marshal(r)
		b = append(append(b, line...), '\n')
	}
	_, err := s.f.Write(b)
	return store.Result{Stored: len(records)}, err
}

const childEnv = "INTAKE_TEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

// child takes chunks without end, by the same path as a connection, and prints the
// number of each after it would have been acknowledged.
func child(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, "store.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	in, err := New(Options{Name: "eu-1", Dir: dir, Sink: fileSink{f}, WriteLines: 50})
	if err != nil {
		panic(err)
	}
	go func() { _ = in.Run(context.Background()) }()
	s, err := in.enter(paris, "eu-west")
	if err != nil {
		panic(err)
	}
	w := in.newWorker()
	first := 0
	_, _ = fmt.Sscan(os.Getenv("INTAKE_TEST_FIRST"), &first)
	for i := first; ; i++ {
		id := fmt.Sprint("chunk", i)
		m, err := parseMessage(forward(id, 5, func(j int) string { return fmt.Sprint(i, ".", j) }))
		if err != nil {
			panic(err)
		}
		if _, err := w.deliver(delivery{site: s, region: "eu-west", tag: m.tag, hash: hashOf(paris, m.entries), records: entries(m.entries)}); err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

// TestKill9 kills the process in the middle, several times, and wants every line of
// every chunk that had been acknowledged in the store.
func TestKill9(t *testing.T) {
	dir := t.TempDir()
	next, acked := 0, map[int]bool{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir, fmt.Sprint("INTAKE_TEST_FIRST=", next))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var i int
			if _, err := fmt.Sscan(lines.Text(), &i); err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			acked[i] = true
			next = i + 2 // the one after may have been queued without a word
			if n == 200+31*round {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}
	// The last process is gone; this one drains what is left.
	f, err := os.OpenFile(filepath.Join(dir, "store.jsonl"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := start(t, func(o *Options) { o.Dir, o.Sink = dir, fileSink{f} })
	testkit.EventuallyTrue(t, "the queue is drained", func() bool { return r.queue.Stats().Pending == 0 })
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	seen, torn := map[string]int{}, 0
	for _, line := range bytes.Split(bytes.TrimSpace(b), []byte("\n")) {
		var rec Record
		if json.Unmarshal(line, &rec) != nil {
			torn++ // a write that the kill cut off
			continue
		}
		seen[rec.Message]++
	}
	twice := 0
	for i := range acked {
		for j := range 5 {
			switch n := seen[fmt.Sprint(i, ".", j)]; {
			case n == 0:
				t.Errorf("line %d.%d was acknowledged and is lost", i, j)
			case n > 1:
				twice++
			}
		}
	}
	t.Logf("%d chunks acknowledged over 4 kills, %d lines written twice, %d torn", len(acked), twice, torn)
}

// TestQueueAge: with a cap on age, what waited longer than that is dropped from the
// queue and counted; what is younger is stored.
func TestQueueAge(t *testing.T) {
	dir, text := t.TempDir(), func(s string) func(int) string { return func(int) string { return s } }
	r := start(t, func(o *Options) { o.Dir, o.QueueAge = dir, time.Hour })
	r.sink.setDown(errors.New("down"))
	if got := send(t, r.dial(t, paris), forward("a", 3, text("old"))); got != ackOf("a") {
		t.Fatalf("ack %q", got)
	}
	r.stop()
	r = start(t, func(o *Options) {
		o.Dir, o.QueueAge, o.Now = dir, time.Hour, func() time.Time { return time.Now().Add(61 * time.Minute) }
	})
	if got := send(t, r.dial(t, paris), forward("b", 2, text("new"))); got != ackOf("b") {
		t.Fatalf("ack %q", got)
	}
	testkit.EventuallyTrue(t, "the new lines are stored", func() bool { return r.sink.count() == 2 })
	for _, rec := range r.sink.all() {
		if rec.Message != "new" {
			t.Errorf("stored %q", rec.Message)
		}
	}
	if st := r.queue.Stats(); st.Dropped.Age != 1 || st.Pending != 0 {
		t.Errorf("%+v, want one message of three lines dropped", st)
	}
}
