package relay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/regional"
)

// regionalState is a set of a tenant's rules and inventory blobs: KIND/NAME=TEXT.
func (c *control) regionalState(specs ...string) *wire.DesiredState {
	d := &wire.DesiredState{}
	for _, s := range specs {
		key, text, _ := strings.Cut(s, "=")
		kind, name, _ := strings.Cut(key, "/")
		b := []byte(text)
		d.Items = append(d.Items, &wire.Item{Kind: kind, Name: name, Digest: wire.DigestOf(b), Size: int64(len(b))})
		c.mu.Lock()
		c.blobs[wire.DigestOf(b)] = b
		c.mu.Unlock()
	}
	d.Revision = wire.RevisionOf(d.Items)
	return d
}

func (c *control) push(d *wire.DesiredState) {
	c.down <- &wire.RelayDown{Msg: &wire.RelayDown_Regional{Regional: &wire.RegionalDesired{Desired: d}}}
}

// consumer takes what the regional holds; it refuses blobs that hold "bad".
type consumer struct {
	mu    sync.Mutex
	calls []string
	busy  atomic.Int32
	t     *testing.T
}

func (c *consumer) apply(items []Item) []ItemError {
	if c.busy.Add(1) != 1 {
		c.t.Error("called concurrently")
	}
	defer c.busy.Add(-1)
	var errs []ItemError
	var all []string
	for _, it := range items {
		if wire.DigestOf(it.Blob) != it.Digest {
			c.t.Errorf("%s/%s: the blob is not what its digest says", it.Kind, it.Name)
		}
		all = append(all, it.Kind+"/"+it.Name+"="+string(it.Blob))
		switch {
		case strings.Contains(string(it.Blob), "bad"):
			errs = append(errs, ItemError{it.Kind, it.Name, errors.New("it is bad")})
		case strings.Contains(string(it.Blob), "half"):
			errs = append(errs, ItemError{"AlertRules", it.Name + "/up", errors.New("half of it is bad\xff")})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, strings.Join(all, " "))
	return errs
}

func (c *consumer) log() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.calls...)
}

func (c *consumer) await(t *testing.T, n int, last string) {
	t.Helper()
	testkit.EventuallyTrue(t, fmt.Sprintf("call %d with %q", n, last), func() bool {
		l := c.log()
		return len(l) == n && l[n-1] == last
	})
}

func (c *control) sawReport(want string) func() bool {
	return func() bool { return strings.Contains(c.log(), want) }
}

func TestRegionalSetIsAppliedReportedAndKept(t *testing.T) {
	dir := t.TempDir()
	c := newControl()
	addr, stopControl := c.serve(t, "")
	got := &consumer{t: t}
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	stop := run(t, r)
	if r.Connected() && len(got.log()) > 0 {
		t.Error("nothing is stored, but something was handed on")
	}
	testkit.EventuallyTrue(t, "connected", r.Connected)

	first := c.regionalState("Inventory/acme=i1", "Rules/acme=r1", "Rules/umbrella=u1")
	c.push(first)
	got.await(t, 1, "Inventory/acme=i1 Rules/acme=r1 Rules/umbrella=u1")
	testkit.EventuallyTrue(t, "the report", c.sawReport("regional "+first.Revision[:8]+" Inventory/acme Rules/acme Rules/umbrella"))
	// Its blobs are not for sites, also not when one knows the digest.
	if _, err := read(t, r, paris, first.Items[1].Digest, 0); !errors.Is(err, regional.ErrUnknownBlob) {
		t.Errorf("a site asked for rules: %v", err)
	}
	fetches := c.fetched()

	// A bad one is refused: the rest is in effect, and what is kept is the last good.
	c.push(c.regionalState("Inventory/acme=i2", "Rules/acme=bad", "Rules/umbrella=half"))
	got.await(t, 2, "Inventory/acme=i2 Rules/acme=bad Rules/umbrella=half")
	testkit.EventuallyTrue(t, "the refusal", c.sawReport("Rules/acme!it is bad Rules/umbrella AlertRules/umbrella/up!half of it is bad?"))
	if n := c.fetched() - fetches; n != 3 {
		t.Errorf("%d blobs were fetched, want those 3 that are new", n)
	}
	if st := r.Status().Held; st.Items != 3 || st.Refused != 2 || len(st.Errors) != 2 || st.Pending {
		t.Errorf("status %+v", st)
	}
	// What fails at work is told, once, and its end.
	failing := []ItemError{{Kind: "AlertRules", Name: "acme/loud", Err: errors.New("it gives too much")}}
	reports := strings.Count(c.log(), "regional ")
	r.RulesFail(failing)
	r.RulesFail(failing)
	testkit.EventuallyTrue(t, "the failure", c.sawReport("AlertRules/acme/loud!it gives too much"))
	r.RulesFail(nil)
	testkit.EventuallyTrue(t, "its end", func() bool { return strings.Count(c.log(), "regional ") == reports+2 })
	if all := strings.Split(c.log(), "regional "); strings.Contains(all[len(all)-1], "loud") {
		t.Errorf("it fails still: %s", all[len(all)-1])
	}
	// The same set again, as on a new stream: only the report is repeated.
	n := strings.Count(c.log(), "regional ")
	c.push(c.regionalState("Inventory/acme=i2", "Rules/acme=bad", "Rules/umbrella=half"))
	testkit.EventuallyTrue(t, "the report again", func() bool { return strings.Count(c.log(), "regional ") == n+1 })

	stop()
	stopControl()
	if len(got.log()) != 2 {
		t.Errorf("calls %q", got.log())
	}
	// Without control, a new process goes on with the last good set.
	got = &consumer{t: t}
	r = newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	stop = run(t, r)
	got.await(t, 1, "Inventory/acme=i2 Rules/acme=r1 Rules/umbrella=half")
	if r.Connected() {
		t.Error("connected to a control that is down")
	}
	// Control is back, with what the regional holds already, and then something else.
	c2 := newControl()
	c2.serve(t, addr)
	testkit.EventuallyTrue(t, "connected again", r.Connected)
	same := c2.regionalState("Inventory/acme=i2", "Rules/acme=r1", "Rules/umbrella=half")
	c2.push(same)
	testkit.EventuallyTrue(t, "what was stored is reported", c2.sawReport("regional "+same.Revision[:8]))
	c2.push(c2.regionalState("Inventory/acme=i3"))
	got.await(t, 2, "Inventory/acme=i3")
	testkit.EventuallyTrue(t, "that is stored, and nothing else", func() bool {
		files, _ := os.ReadDir(filepath.Join(dir, "regional", "blobs"))
		return len(files) == 1 && files[0].Name() == wire.DigestOf([]byte("i3"))
	})
	stop()
}

func TestCorruptRegionalBlobIsFetchedAgain(t *testing.T) {
	dir := t.TempDir()
	c := newControl()
	addr, stopControl := c.serve(t, "")
	got := &consumer{t: t}
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	stop := run(t, r)
	set := c.regionalState("Inventory/acme=i1", "Rules/acme=rules")
	c.push(set)
	got.await(t, 1, "Inventory/acme=i1 Rules/acme=rules")
	file := filepath.Join(dir, "regional", "blobs", wire.DigestOf([]byte("rules")))
	testkit.EventuallyTrue(t, "stored", func() bool { _, err := os.Stat(filepath.Join(dir, "regional", "set")); return err == nil })
	stop()
	stopControl()
	if err := os.WriteFile(file, []byte("rulez"), 0o600); err != nil { // as long as the good one
		t.Fatal(err)
	}

	got = &consumer{t: t}
	r = newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	run(t, r)
	got.await(t, 1, "Inventory/acme=i1")
	c2 := newControl()
	c2.serve(t, addr)
	testkit.EventuallyTrue(t, "connected", r.Connected)
	c2.push(c2.regionalState("Inventory/acme=i1", "Rules/acme=rules"))
	got.await(t, 2, "Inventory/acme=i1 Rules/acme=rules")
	if c2.fetched() != 1 {
		t.Errorf("%d fetches", c2.fetched())
	}
	testkit.EventuallyTrue(t, "mended on disk", func() bool { b, _ := os.ReadFile(file); return string(b) == "rules" })
}

func TestUnreadableRegionalSetIsNoneAtAll(t *testing.T) {
	for name, content := range map[string][]byte{"garbage": []byte("\xff\xff"), "other revision": mustMarshal(t, &wire.DesiredState{Revision: "x"}), "empty": nil} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "regional"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "regional", "set"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		c := newControl()
		addr, _ := c.serve(t, "")
		got := &consumer{t: t}
		r := newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
		stop := run(t, r)
		c.push(c.regionalState("Rules/acme=r1"))
		testkit.EventuallyTrue(t, name+": control's set", func() bool { return len(got.log()) > 0 })
		if l := got.log(); !reflect.DeepEqual(l, []string{"Rules/acme=r1"}) {
			t.Errorf("%s: %q", name, l)
		}
		stop()
	}
}

// What control says wrongly, or has no blob for, leaves in effect what there is.
func TestRegionalSetThatCannotBeHad(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	got := &consumer{t: t}
	run(t, newRelay(t, Options{Control: client(t, addr), OnRegional: got.apply}))
	c.push(c.regionalState("Rules/acme=r1"))
	got.await(t, 1, "Rules/acme=r1")
	wrong := c.regionalState("Rules/acme=r2")
	wrong.Revision = strings.Repeat("0", 64)
	c.push(wrong)
	c.push(nil)
	twice := c.regionalState("Rules/acme=r2", "Rules/acme=r3")
	c.push(twice)
	missing := c.regionalState("Rules/acme=r4")
	c.mu.Lock()
	delete(c.blobs, missing.Items[0].Digest)
	c.mu.Unlock()
	c.push(missing)
	falsified := c.regionalState("Rules/acme=r5")
	c.mu.Lock()
	c.blobs[falsified.Items[0].Digest] = []byte("r6")
	c.mu.Unlock()
	c.push(falsified)
	long := c.regionalState("Rules/acme=r7")
	c.mu.Lock()
	c.blobs[long.Items[0].Digest] = bytes.Repeat([]byte("x"), 1<<20)
	c.mu.Unlock()
	c.push(long)
	c.push(c.regionalState("Rules/acme=r8"))
	got.await(t, 2, "Rules/acme=r8")
}

func TestConditionsOfSitesGoUpOnEachStream(t *testing.T) {
	c := newControl()
	addr, stopControl := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)})
	run(t, r)
	over := []*wire.Condition{{Type: "LogBudgetExceeded", Status: "True", Reason: "OverBudget"}}
	s := newSession()
	r.SiteUp(paris, &wire.Hello{}, s)
	testkit.EventuallyTrue(t, "an empty list follows the site", c.sawReport("up acme/paris, conditions acme/paris []"))
	r.SiteConditions(paris, over)
	r.SiteConditions(tokyo, over) // not connected now
	testkit.EventuallyTrue(t, "they are told", func() bool {
		return strings.Contains(c.log(), "conditions acme/paris [LogBudgetExceeded]") && strings.Contains(c.log(), "conditions umbrella/tokyo [LogBudgetExceeded]")
	})
	stopControl()
	testkit.EventuallyTrue(t, "control is gone", func() bool { return !r.Connected() })
	r.SiteConditions(tokyo, nil)
	c2 := newControl()
	c2.serve(t, addr)
	testkit.EventuallyTrue(t, "told again, the latest", func() bool {
		return strings.Contains(c2.log(), "up acme/paris, conditions acme/paris [LogBudgetExceeded]") && strings.Contains(c2.log(), "conditions umbrella/tokyo []")
	})
	if strings.Contains(c2.log(), "tokyo [Log") {
		t.Errorf("an old state was told: %s", c2.log())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conditions) != 1 || len(r.condsDue) != 0 {
		t.Errorf("kept: %v, due %v", r.conditions, r.condsDue)
	}
}

// A control that knows nothing of all this says nothing of it, and what the regional
// has stays in effect. One without a consumer takes nothing.
func TestOlderPeers(t *testing.T) {
	c := newControl()
	addr, _ := c.serve(t, "")
	r := newRelay(t, Options{Control: client(t, addr)}) // no OnRegional
	run(t, r)
	testkit.EventuallyTrue(t, "connected", r.Connected)
	c.push(c.regionalState("Rules/acme=r1"))
	r.SiteUp(paris, &wire.Hello{}, newSession())
	testkit.EventuallyTrue(t, "it goes on", c.sawReport("up acme/paris"))
	if c.fetched() != 0 || strings.Contains(c.log(), "regional ") {
		t.Errorf("%d fetches; %s", c.fetched(), c.log())
	}

	dir := t.TempDir()
	got := &consumer{t: t}
	o := newHeld(filepath.Join(dir, "regional"), got.apply, nil, func() {}, r.log)
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	set := c.regionalState("Rules/acme=r1")
	o.blobs[set.Items[0].Digest] = []byte("r1")
	o.keepGood(set, o.applyItems(set))
	r = newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	run(t, r)
	testkit.EventuallyTrue(t, "connected", r.Connected)
	got.await(t, 2, "Rules/acme=r1")
	if strings.Contains(c.log(), "regional ") {
		t.Errorf("a control that did not ask was told: %s", c.log())
	}
}

// A refusal of the stream, as of a regional whose certificate is refused, takes
// nothing away.
func TestRefusedRegionalGoesOn(t *testing.T) {
	dir := t.TempDir()
	c := newControl()
	addr, _ := c.serve(t, "")
	got := &consumer{t: t}
	r := newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	stop := run(t, r)
	c.push(c.regionalState("Rules/acme=r1"))
	testkit.EventuallyTrue(t, "stored", func() bool { _, err := os.Stat(filepath.Join(dir, "regional", "set")); return err == nil })
	stop()
	c.mu.Lock()
	c.refuse = status.Error(codes.PermissionDenied, "this service is for regionals")
	c.mu.Unlock()
	got = &consumer{t: t}
	r = newRelay(t, Options{Dir: dir, Control: client(t, addr), OnRegional: got.apply})
	run(t, r)
	got.await(t, 1, "Rules/acme=r1")
	testkit.EventuallyTrue(t, "turned away", func() bool { return strings.Contains(r.Status().LastError, "for regionals") })
	if r.Connected() {
		t.Error("connected")
	}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzDecodeSet(f *testing.F) {
	set := &wire.DesiredState{Items: []*wire.Item{{Kind: region.KindRules, Name: "acme", Digest: wire.DigestOf(nil)}}}
	set.Revision = wire.RevisionOf(set.Items)
	f.Add(mustMarshal(f, set))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := decodeSet(b)
		if err != nil {
			return
		}
		for _, it := range st.Items {
			if len(it.Digest) != 64 || strings.ContainsAny(it.Digest, "/.") {
				t.Fatalf("digest %q would be a path", it.Digest)
			}
		}
		if _, err := decodeSet(mustMarshal(t, st)); err != nil {
			t.Fatalf("not stable: %v", err)
		}
	})
}
