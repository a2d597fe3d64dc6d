package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

var paris = fleet.SiteID{Tenant: "acme", Name: "paris"}

// recorder is an Applier that can be told to fail.
type recorder struct {
	mu      sync.Mutex
	applied []string // "name=content"
	removed []string
	bad     string // contents with this text are refused
}

func (r *recorder) Apply(_ context.Context, it *wire.Item, blob []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bad != "" && strings.Contains(string(blob), r.bad) {
		return errors.New("allow.patterns: bad regex")
	}
	r.applied = append(r.applied, it.Name+"="+string(blob))
	return nil
}

func (r *recorder) Remove(_ context.Context, it *wire.Item) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = append(r.removed, it.Name)
	return nil
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.applied) == 0 {
		return ""
	}
	return r.applied[len(r.applied)-1]
}

func (r *recorder) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.applied, " ")
}

// site is an agent that runs.
type site struct {
	*agent.Agent
	dir  string
	rec  *recorder
	stop func()
}

func logger(t testing.TB) *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

func join(t testing.TB, dir string, servers []*fakeregional.Regional) {
	t.Helper()
	var urls []string
	for _, r := range servers {
		urls = append(urls, r.URL())
	}
	if err := agent.Join(dir, agent.JoinConfig{Servers: urls, Token: "muster1.acme.tok.secret", CAHash: servers[0].CAHash(), Site: "paris"}); err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, dir string, rec *recorder, change ...func(*agent.Options)) *site {
	t.Helper()
	if rec == nil {
		rec = &recorder{}
	}
	o := agent.Options{
		Dir: dir, Version: "v1.2.3", Logger: logger(t), Appliers: map[string]agent.Applier{"CollectionPolicy": rec},
		SystemLabels: func() map[string]string { return map[string]string{"arch": "amd64"} },
		Versions:     func() map[string]string { return map[string]string{"os": "Debian"} },
		MinBackoff:   5 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, ConnectTimeout: 5 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}
	a, err := agent.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	s := &site{a, dir, rec, sync.OnceFunc(func() { cancel(); <-done })}
	t.Cleanup(s.stop)
	return s
}

// fleetOf is a regional and a joined site that is connected.
func fleetOf(t testing.TB, change ...func(*agent.Options)) (*fakeregional.Regional, *site) {
	t.Helper()
	r := fakeregional.Start(t, fakeregional.Options{})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	s := start(t, dir, nil, change...)
	r.Eventually("the site is connected", func() bool { return r.Seen(paris).Connected && r.Seen(paris).Reports > 0 })
	return r, s
}

func policy(content string) fakeregional.Blob {
	return fakeregional.Blob{Kind: "CollectionPolicy", Name: "effective", Data: []byte(content)}
}

func TestFromJoinToAppliedPolicy(t *testing.T) {
	r, s := fleetOf(t)
	seen := r.Seen(paris)
	if seen.Hello.Capability != wire.Capability || seen.Hello.AgentVersion != "v1.2.3" || seen.Hello.SystemLabels["arch"] != "amd64" {
		t.Errorf("hello %v", seen.Hello)
	}
	if seen.Report.Versions["os"] != "Debian" || seen.Report.Versions["agent"] != "v1.2.3" {
		t.Errorf("report %v", seen.Report)
	}
	if id, region, ok := s.Identity(); id != paris || region != "eu" || !ok {
		t.Errorf("identity %v %q %v", id, region, ok)
	}
	st := r.SetDesired(paris, policy("one"))
	r.Eventually("the policy is applied and reported", func() bool {
		rep := r.Seen(paris).Report
		return rep.GetAppliedRevision() == st.Revision && rep.GetPolicyHash() == st.Items[0].Digest
	})
	if s.rec.all() != "effective=one" {
		t.Errorf("applied %s", s.rec.all())
	}
	if c := r.Seen(paris).Condition("CollectionPolicyApplied"); c.GetStatus() != "True" {
		t.Errorf("condition %v", c)
	}
	r.Eventually("heartbeats", func() bool { return r.Seen(paris).Heartbeats > 2 })
	before := r.Seen(paris).Reports
	s.SetCondition("SeriesBudgetExceeded", "True", "OverBudget", "12 series refused")
	r.Eventually("the collector's condition is reported", func() bool {
		return r.Seen(paris).Condition("SeriesBudgetExceeded").GetMessage() == "12 series refused"
	})
	if n := r.Seen(paris).Reports; n != before+1 {
		t.Errorf("%d reports for one change", n-before)
	}
	// Another message alone, and a condition that comes and goes, are no report each.
	before = r.Seen(paris).Reports
	for i := range 200 {
		s.SetCondition("SeriesBudgetExceeded", "True", "OverBudget", fmt.Sprint(i, " series refused"))
		s.SetCondition("PushFailing", []string{"True", "False"}[i%2], "Retrying", "")
		if i%40 == 0 {
			beats := r.Seen(paris).Heartbeats
			r.Eventually("time passes", func() bool { return r.Seen(paris).Heartbeats > beats+2 })
		}
	}
	if n := r.Seen(paris).Reports - before; n > 2 {
		t.Errorf("%d reports", n)
	}
	got := s.Status()
	if got.Phase != agent.PhaseConnected || got.Regional != "eu-1" || got.Desired.Applied != st.Revision || got.Certificate == nil || got.Site != "paris" {
		t.Errorf("status %+v", got)
	}
	if b, err := json.Marshal(got); err != nil || strings.Contains(string(b), "secret") {
		t.Errorf("status as JSON: %s, %v", b, err)
	}
	for _, f := range []string{"key.pem", "join.json", "cert.pem", "bundle.pem", "desired.json"} {
		if st, err := os.Stat(filepath.Join(s.dir, f)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, st, err)
		}
	}
}

// What is other in the desired state is taken without the rest of it, also after a restart; a
// change that does not follow what the site holds has it ask for all of it.
func TestChangesOfTheDesiredState(t *testing.T) {
	r, s := fleetOf(t)
	blob := func(name, data string) fakeregional.Blob {
		return fakeregional.Blob{Kind: "CollectionPolicy", Name: name, Data: []byte(data)}
	}
	applied := func(what string, st *wire.DesiredState) {
		t.Helper()
		r.Eventually(what, func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	}
	applied("the first state", r.SetDesired(paris, blob("a", "1"), blob("b", "1"), blob("c", "1")))
	applied("a change", r.SetDesired(paris, blob("a", "1"), blob("b", "2"), blob("c", "1")))
	st := r.SetDesired(paris, blob("a", "1"), blob("c", "1"))
	applied("one less", st)
	if n := r.Seen(paris).Changes; n != 2 {
		t.Errorf("%d of two changes were told as such", n)
	}
	connects := r.Seen(paris).Connects
	r.SendChange(paris, &wire.DesiredChange{Revision: strings.Repeat("a", 64), After: strings.Repeat("b", 64)})
	r.Eventually("it comes back and asks for everything", func() bool {
		seen := r.Seen(paris)
		return seen.Connects > connects && seen.Hello.GetRevision() == ""
	})
	r.Eventually("it is well", func() bool { return s.Status().Phase == agent.PhaseConnected })
	applied("the next one", r.SetDesired(paris, blob("a", "9"), blob("c", "1"), blob("d", "1")))
	s.stop()
	st = r.SetDesired(paris, blob("a", "9"), blob("c", "2"), blob("d", "1"))
	start(t, s.dir, nil)
	applied("what changed while it was away", st)
	r.SendChange(paris, wire.ChangeBetween(st, &wire.DesiredState{Revision: wire.RevisionOf(st.Items[:2]), Items: st.Items[:2]}))
	r.Eventually("a change of what it named when it came", func() bool {
		return r.Seen(paris).Report.GetAppliedRevision() == wire.RevisionOf(st.Items[:2])
	})
}

func TestRestartWithControlDownAppliesTheLastState(t *testing.T) {
	r, s := fleetOf(t)
	st := r.SetDesired(paris, policy("one"))
	r.Eventually("applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	s.stop()
	r.Stop()
	s2 := start(t, s.dir, nil)
	r.Eventually("applied from disk", func() bool { return s2.rec.last() == "effective=one" && s2.Status().Desired.Applied == st.Revision })
	// The first attempt to connect may still be under way.
	r.Eventually("nobody there to connect to", func() bool {
		got := s2.Status()
		return got.Phase == agent.PhaseConnecting && got.LastError != ""
	})
	r.Restart()
	r.Eventually("connected again, as what it was", func() bool { return r.Seen(paris).Hello.GetRevision() == st.Revision })
	if n := len(r.Fetched()); n != 1 {
		t.Errorf("%d downloads, want the first alone", n)
	}
}

func TestABadPolicyKeepsTheLastGoodOne(t *testing.T) {
	r, s := fleetOf(t)
	good := r.SetDesired(paris, policy("good"))
	r.Eventually("applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == good.Revision })
	s.rec.mu.Lock()
	s.rec.bad = "broken"
	s.rec.mu.Unlock()
	bad := r.SetDesired(paris, policy("broken"))
	r.Eventually("the refusal is reported", func() bool { return r.Seen(paris).Condition("CollectionPolicyApplied").GetStatus() == "False" })
	seen := r.Seen(paris)
	if c := seen.Condition("CollectionPolicyApplied"); !strings.Contains(c.Message, "bad regex") {
		t.Errorf("condition %v", c)
	}
	if seen.Report.PolicyHash != good.Items[0].Digest || seen.Report.AppliedRevision == bad.Revision {
		t.Errorf("report %v", seen.Report)
	}
	// A restart runs the good one, though control still wants the bad one.
	s.stop()
	r.Stop()
	s2 := start(t, s.dir, &recorder{bad: "broken"})
	r.Eventually("the good one is applied", func() bool { return s2.rec.all() == "effective=good" })
	r.Restart()
	r.Eventually("still reported", func() bool {
		return r.Seen(paris).Connects > 1 && r.Seen(paris).Condition("CollectionPolicyApplied").GetStatus() == "False" && r.Seen(paris).Report.GetPolicyHash() == good.Items[0].Digest
	})
	better := r.SetDesired(paris, policy("better"))
	r.Eventually("mended", func() bool {
		return r.Seen(paris).Report.GetAppliedRevision() == better.Revision && r.Seen(paris).Condition("CollectionPolicyApplied").GetStatus() == "True"
	})
	// Nothing of the past stays on the disk.
	r.Eventually("old blobs are swept", func() bool {
		left, _ := os.ReadDir(filepath.Join(s.dir, "blobs"))
		return len(left) == 1
	})
}

func TestItemsThatGoAreRemovedAndUnknownKindsAreNamed(t *testing.T) {
	r, s := fleetOf(t)
	st := r.SetDesired(paris, policy("one"), fakeregional.Blob{Kind: "CollectionPolicy", Name: "second", Data: []byte("two")})
	r.Eventually("both applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	st = r.SetDesired(paris, policy("one"))
	r.Eventually("one left", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	s.rec.mu.Lock()
	removed := fmt.Sprint(s.rec.removed)
	s.rec.mu.Unlock()
	if removed != "[second]" {
		t.Errorf("removed %s", removed)
	}
	r.SetDesired(paris, policy("three"), fakeregional.Blob{Kind: "Workload", Name: "shop", Data: []byte("x")})
	r.Eventually("the unknown kind is named, the known one applied", func() bool {
		seen := r.Seen(paris)
		return strings.Contains(seen.Condition("WorkloadApplied").GetMessage(), "update the agent") && seen.Condition("CollectionPolicyApplied").GetStatus() == "True" && s.rec.last() == "effective=three"
	})
}

func TestABrokenDownloadGoesOnWhereItStopped(t *testing.T) {
	r, s := fleetOf(t)
	content := strings.Repeat("0123456789", 1000)
	r.CutDownloads(2, 3000)
	st := r.SetDesired(paris, policy(content))
	r.Eventually("applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	if s.rec.last() != "effective="+content {
		t.Error("content differs")
	}
	var offsets []int64
	for _, f := range r.Fetched() {
		offsets = append(offsets, f.Offset)
	}
	if fmt.Sprint(offsets) != "[0 3000 6000]" {
		t.Errorf("offsets %v, want [0 3000 6000]", offsets)
	}
}

func TestAFalsifiedBlobIsNeverApplied(t *testing.T) {
	r, s := fleetOf(t)
	digest := wire.DigestOf([]byte("true"))
	for _, wrong := range []string{"fals", "false", "", strings.Repeat("x", 1<<16)} {
		r.SetBlob(digest, []byte(wrong))
		items := []*wire.Item{{Kind: "CollectionPolicy", Name: "effective", Digest: digest, Size: 4}}
		r.SetState(paris, &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items})
		n := len(r.Fetched())
		r.Eventually("it was fetched, and again", func() bool { return len(r.Fetched()) > n+1 })
	}
	if s.rec.all() != "" {
		t.Errorf("applied %q", s.rec.all())
	}
	r.SetBlob(digest, []byte("true"))
	r.Eventually("the true one is applied", func() bool { return s.rec.last() == "effective=true" })
}

func TestAHostileStateIsRefused(t *testing.T) {
	r, s := fleetOf(t)
	ok := wire.DigestOf(nil)
	for why, items := range map[string][]*wire.Item{
		"is no SHA-256":  {{Kind: "CollectionPolicy", Name: "x", Digest: "../../../../etc/passwd"}},
		"bytes, want at": {{Kind: "CollectionPolicy", Name: "x", Digest: ok, Size: 1 << 50}},
		"-1 bytes":       {{Kind: "CollectionPolicy", Name: "x", Digest: ok, Size: -1}},
		"is there twice": {{Kind: "CollectionPolicy", Name: "x", Digest: ok}, {Kind: "CollectionPolicy", Name: "x", Digest: ok}},
		"no usable kind": {{Kind: "CollectionPolicy", Digest: ok}},
	} {
		r.SetState(paris, &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items})
		r.Eventually("refused: "+why, func() bool {
			return strings.Contains(s.Status().LastError, why) && r.Seen(paris).Condition("DesiredStateValid").GetStatus() == "False"
		})
	}
	r.SetState(paris, &wire.DesiredState{Revision: "of something else"})
	r.Eventually("refused: a revision that lies", func() bool { return strings.Contains(s.Status().LastError, "does not name its items") })
	st := r.SetDesired(paris, policy("fine"))
	r.Eventually("a good state mends it", func() bool {
		return r.Seen(paris).Report.GetAppliedRevision() == st.Revision && r.Seen(paris).Condition("DesiredStateValid").GetStatus() == "True"
	})
}

func TestPendingThenApproved(t *testing.T) {
	r := fakeregional.Start(t, fakeregional.Options{})
	var mu sync.Mutex
	approved, asked := false, 0
	r.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if !approved {
			return &wire.RegisterResponse{Tenant: "acme", Site: "paris", RetryAfter: durationpb.New(time.Millisecond), Message: "site paris waits for approval"}, nil
		}
		return r.Issue(req, paris)
	})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	s := start(t, dir, nil)
	r.Eventually("it waits", func() bool {
		return s.Status().Phase == agent.PhasePending && strings.Contains(s.Status().Message, "approval")
	})
	mu.Lock()
	approved = true
	mu.Unlock()
	r.Eventually("connected", func() bool { return r.Seen(paris).Connected })
	select {
	case <-s.Enrolled():
	default:
		t.Error("Enrolled is not closed")
	}
}

func TestARefusalIsShownAndRetriedRarely(t *testing.T) {
	r := fakeregional.Start(t, fakeregional.Options{})
	var mu sync.Mutex
	asked := 0
	r.OnRegister(func(*wire.RegisterRequest) (*wire.RegisterResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		if asked > 2 {
			return nil, status.Error(codes.AlreadyExists, "site paris is registered with another key")
		}
		return nil, status.Error(codes.PermissionDenied, "registration token tok expired")
	})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	s := start(t, dir, nil)
	r.Eventually("the reason is shown", func() bool {
		return s.Status().Phase == agent.PhaseRefused && strings.Contains(s.Status().Message, "another key")
	})
	r.OnRegister(nil) // somebody mended it
	r.Eventually("connected without a restart", func() bool { return r.Seen(paris).Connected })
}

// A gateway that is busy is asked again after the time that it says, with other servers
// in the list or not, and not as rarely as one that said no.
func TestABusyGatewayIsAskedAgainWhenItSays(t *testing.T) {
	r, other := fakeregional.Start(t, fakeregional.Options{}), fakeregional.Start(t, fakeregional.Options{})
	const after = 300 * time.Millisecond
	var mu sync.Mutex
	var asked []time.Time
	r.OnRegister(func(*wire.RegisterRequest) (*wire.RegisterResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, time.Now())
		if len(asked) > 3 {
			r.OnRegister(nil)
		}
		return nil, wire.Later(after, "too many registrations")
	})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r, other})
	start(t, dir, nil)
	r.Eventually("connected", func() bool { return r.Seen(paris).Connected })
	mu.Lock()
	defer mu.Unlock()
	for i := range len(asked) - 1 {
		if wait := asked[i+1].Sub(asked[i]); wait < after {
			t.Errorf("asked again after %s, want at least %s", wait, after)
		}
	}
}

func TestImpostorsAreNotToldTheToken(t *testing.T) {
	real, evil := fakeregional.Start(t, fakeregional.Options{}), fakeregional.Start(t, fakeregional.Options{})
	told := make(chan string, 10)
	evil.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		told <- req.Token
		return nil, status.Error(codes.PermissionDenied, "thanks")
	})
	dir := t.TempDir()
	if err := agent.Join(dir, agent.JoinConfig{Servers: []string{evil.URL()}, Token: "secret", CAHash: real.CAHash(), Site: "paris"}); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, nil)
	real.Eventually("the impostor is noticed", func() bool { return strings.Contains(s.Status().LastError, "has the hash") })
	select {
	case tok := <-told:
		t.Errorf("the impostor was told %q", tok)
	default:
	}
}

func TestRenewalBeforeTheEnd(t *testing.T) {
	ca, err := pki.Open(pki.Options{Dir: t.TempDir(), SiteLife: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r := fakeregional.Start(t, fakeregional.Options{CA: ca})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	s := start(t, dir, nil)
	r.Eventually("connected", func() bool { return r.Seen(paris).Connected })
	first := r.Seen(paris).Serial
	until := s.Status().Certificate.NotAfter
	r.Eventually("renewed, and the stream is on the new certificate", func() bool { return r.Seen(paris).Serial != first && r.Seen(paris).Connected })
	if time.Now().After(until) {
		t.Error("renewed only after the end")
	}
	if r.Renewals() == 0 {
		t.Error("it registered anew instead of renewing")
	}
}

func TestEnrolsAgainWhenTheCertificateExpiredOffline(t *testing.T) {
	ca, err := pki.Open(pki.Options{Dir: t.TempDir(), SiteLife: 1500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	r := fakeregional.Start(t, fakeregional.Options{CA: ca})
	keys := map[string]bool{}
	var mu sync.Mutex
	r.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		c, err := pki.ParseCSR(req.GetCsr())
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		keys[c.KeyHash] = true
		return r.Issue(req, paris)
	})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{r})
	s := start(t, dir, nil)
	r.Eventually("connected", func() bool { return r.Seen(paris).Connected })
	s.stop()
	until := s.Status().Certificate.NotAfter
	r.Eventually("the certificate is over", func() bool { return time.Now().After(until.Add(time.Second)) })
	before := r.Seen(paris).Connects
	s2 := start(t, dir, nil)
	r.Eventually("connected again", func() bool { return r.Seen(paris).Connects > before })
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 1 {
		t.Errorf("%d keys: it came back as somebody else", len(keys))
	}
	if id, _, _ := s2.Identity(); id != paris {
		t.Errorf("identity %v", id)
	}
}

func TestARefusedCertificateIsReplaced(t *testing.T) {
	r, _ := fleetOf(t)
	r.Refuse(paris, status.Error(codes.Unauthenticated, "issued before the site was let in anew"))
	r.Stop()
	first := r.Seen(paris).Serial
	enrolled := make(chan struct{})
	var once sync.Once
	r.OnRegister(func(req *wire.RegisterRequest) (*wire.RegisterResponse, error) {
		once.Do(func() { close(enrolled) })
		r.Refuse(paris, nil)
		return r.Issue(req, paris)
	})
	r.Restart()
	r.Eventually("on a new certificate", func() bool { return r.Seen(paris).Connected && r.Seen(paris).Serial != first })
	<-enrolled
}

func TestFailoverAndReturn(t *testing.T) {
	first := fakeregional.Start(t, fakeregional.Options{})
	second := fakeregional.Start(t, fakeregional.Options{CA: first.CA(), Name: "eu-2"})
	dir := t.TempDir()
	join(t, dir, []*fakeregional.Regional{first, second})
	s := start(t, dir, nil, func(o *agent.Options) { o.ReturnEvery = 100 * time.Millisecond })
	first.Eventually("on the first", func() bool { return first.Seen(paris).Connected })
	if got := s.Endpoint(); got != first.URL() {
		t.Errorf("endpoint %s", got)
	}
	first.Stop()
	first.Eventually("on the second", func() bool { return second.Seen(paris).Connected && s.Endpoint() == second.URL() })
	first.Restart()
	first.Eventually("back on the first", func() bool {
		return first.Seen(paris).Connected && first.Seen(paris).Connects > 1 && s.Endpoint() == first.URL() && !second.Seen(paris).Connected
	})
}

func TestHTTPClientSpeaksAsTheSite(t *testing.T) {
	r, s := fleetOf(t)
	// A gRPC server answers plain HTTP/2 requests with 415 or so: enough to see the
	// connection made, with the right identity, by address.
	resp, err := s.HTTPClient().Get(r.URL() + "/x")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.TLS == nil && resp.StatusCode == http.StatusOK {
		t.Errorf("answer %s %s", resp.Proto, resp.Status)
	}
	evil := fakeregional.Start(t, fakeregional.Options{})
	if resp, err := s.HTTPClient().Get(evil.URL()); err == nil {
		resp.Body.Close()
		t.Error("pushed to a server of another fleet")
	}
}

func TestADamagedDiskIsMended(t *testing.T) {
	r, s := fleetOf(t)
	st := r.SetDesired(paris, policy("one"))
	r.Eventually("applied", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })
	s.stop()
	if err := os.WriteFile(filepath.Join(s.dir, "blobs", st.Items[0].Digest), []byte("0ne"), 0o600); err != nil {
		t.Fatal(err)
	}
	s2 := start(t, s.dir, nil)
	r.Eventually("fetched again and applied", func() bool { return s2.rec.last() == "effective=one" })
	s2.stop()
	for _, f := range []string{"desired.json", "cert.pem"} {
		if err := os.WriteFile(filepath.Join(s.dir, f), []byte("{garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s3 := start(t, s.dir, nil)
	r.Eventually("applied again", func() bool { return s3.rec.last() == "effective=one" })
	s3.stop()
	if err := os.WriteFile(filepath.Join(s.dir, "key.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := agent.New(agent.Options{Dir: s.dir, Version: "v", Logger: logger(t)})
	if err == nil || !strings.Contains(err.Error(), "key.pem") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a lost key: %v", err)
	}
}

func TestJoinChecksWhatItIsTold(t *testing.T) {
	hash := "sha256:" + strings.Repeat("a", 64)
	for name, j := range map[string]agent.JoinConfig{
		"--server":        {Token: "t", CAHash: hash},
		"--server \"http": {Servers: []string{"http://x:1"}, Token: "t", CAHash: hash},
		"--token":         {Servers: []string{"x"}, CAHash: hash},
		"--ca-hash":       {Servers: []string{"x"}, Token: "t", CAHash: "abc"},
		"--site":          {Servers: []string{"x"}, Token: "t", CAHash: hash, Site: "A B"},
	} {
		if err := agent.Join(t.TempDir(), j); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	for _, server := range []string{"gw", "gw:7443", "https://gw", "https://gw:7443/", "[::1]", "::1", "https://[::1]:7443"} {
		if err := agent.Join(dir, agent.JoinConfig{Servers: []string{server}, Token: "t", CAHash: hash}); err != nil {
			t.Errorf("%s: %v", server, err)
			continue
		}
		a, err := agent.New(agent.Options{Dir: dir, Version: "v", Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Endpoint(); got != "https://gw:7443" && got != "https://[::1]:7443" {
			t.Errorf("%s became %s", server, got)
		}
	}
	a, err := agent.New(agent.Options{Dir: t.TempDir(), Version: "v", Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errors.Is(err, agent.ErrNotJoined) {
		t.Errorf("Run = %v", err)
	}
	if st := a.Status(); !strings.Contains(st.Message, "muster-edge join") {
		t.Errorf("status %+v", st)
	}
}
