package registration

import (
	"bufio"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// bench is a Service over a fake API server.
type bench struct {
	t      testing.TB
	client client.Client
	faults *interceptor.Funcs // may be changed before a call
	ca     *pki.CA
	svc    *Service
	audit  string
	events *events
	now    time.Time

	lists  atomic.Int32
	looked chan struct{} // closed at the second List

	mu        sync.Mutex
	certified map[string]time.Time // by Site
}

type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Event(o runtime.Object, typ, reason, msg string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, typ+" "+reason+" "+o.(client.Object).GetName()+" "+msg)
}

func newBench(t testing.TB, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, events: &events{}, now: time.Now(), audit: filepath.Join(t.TempDir(), "audit.log"), looked: make(chan struct{}), certified: map[string]time.Time{}}
	b.faults = &interceptor.Funcs{}
	b.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&v1alpha1.Site{}, &v1alpha1.RegistrationToken{}).
		WithObjects(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if b.faults.Create != nil {
				return b.faults.Create(ctx, c, o, opts...)
			}
			return c.Create(ctx, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if b.lists.Add(1) == 2 {
				close(b.looked)
			}
			return c.List(ctx, l, opts...)
		},
	})
	var err error
	if b.ca, err = pki.Open(pki.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	audit, err := OpenAudit(AuditOptions{File: b.audit, PerMinute: 10000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { audit.Close() })
	b.svc = New(Options{Client: b.client, Issuer: b.ca, Audit: audit, Recorder: b.events, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Now: func() time.Time { return b.now },
		Certified: func(s *v1alpha1.Site, notAfter time.Time) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			_, had := b.certified[s.Name]
			b.certified[s.Name] = notAfter
			return !had
		}})
	return b
}

// token makes a RegistrationToken of tenant acme.
func (b *bench) token(name string, spec v1alpha1.RegistrationTokenSpec) Token {
	b.t.Helper()
	tok, err := NewToken("acme", name)
	if err != nil {
		b.t.Fatal(err)
	}
	spec.SecretHash = tok.SecretHash()
	if err := b.client.Create(b.t.Context(), &v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: name}, Spec: spec}); err != nil {
		b.t.Fatal(err)
	}
	return tok
}

func (b *bench) rt(name string) *v1alpha1.RegistrationToken {
	b.t.Helper()
	var rt v1alpha1.RegistrationToken
	if err := b.client.Get(b.t.Context(), types.NamespacedName{Namespace: "acme-system", Name: name}, &rt); err != nil {
		b.t.Fatal(err)
	}
	return &rt
}

func (b *bench) site(name string) *v1alpha1.Site {
	b.t.Helper()
	var s v1alpha1.Site
	if err := b.client.Get(b.t.Context(), types.NamespacedName{Namespace: "acme-system", Name: name}, &s); err != nil {
		b.t.Fatal(err)
	}
	return &s
}

func (b *bench) sites() []v1alpha1.Site {
	b.t.Helper()
	var l v1alpha1.SiteList
	if err := b.client.List(b.t.Context(), &l); err != nil {
		b.t.Fatal(err)
	}
	return l.Items
}

func (b *bench) records() []Record {
	b.t.Helper()
	f, err := os.Open(b.audit)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	var out []Record
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var r Record
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			b.t.Fatalf("audit line %q: %v", sc.Text(), err)
		}
		out = append(out, r)
	}
	return out
}

func (b *bench) count(r Result) float64 {
	return testutil.ToFloat64(b.svc.total.WithLabelValues(string(r)))
}

func newKey(t testing.TB) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func csrOf(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (b *bench) register(tok Token, site string, key crypto.Signer) (*wire.RegisterResponse, error) {
	return b.svc.Register(b.t.Context(), &wire.RegisterRequest{Token: tok.String(), Csr: csrOf(b.t, key), Site: site, AgentVersion: "v1",
		SystemLabels: map[string]string{"arch": "amd64", "vendor": "Dell Inc.", "hostname": "box.example"}}, "192.0.2.7:4711")
}

func wantRefusal(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("error %v (%s), want %s", err, status.Code(err), code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line", err)
	}
}

func TestAutoApprovedSiteGetsItsCertificateAtOnce(t *testing.T) {
	b := newBench(t)
	tok := b.token("shops", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 5, SiteLabels: map[string]string{"region": "eu-west", "model-year": "2026"}})
	key := newKey(t)
	resp, err := b.register(tok, "paris-07", key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(resp.GetIssued().GetCertificatePem())
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	id, region, err := b.ca.ParseSite(cert)
	if err != nil || id != (fleet.SiteID{Tenant: "acme", Name: "paris-07"}) || region != "eu-west" {
		t.Errorf("certificate of %v in %q, %v", id, region, err)
	}
	if !resp.Issued.NotAfter.AsTime().Equal(cert.NotAfter) || len(resp.Issued.TrustBundlePem) == 0 {
		t.Errorf("issued %v", resp.Issued.NotAfter.AsTime())
	}
	s := b.site("paris-07")
	for k, v := range map[string]string{"region": "eu-west", "model-year": "2026", "muster.dev/tenant": "acme", "muster.dev/system-arch": "amd64", "muster.dev/system-vendor": "Dell-Inc"} {
		if s.Labels[k] != v {
			t.Errorf("label %s = %q, want %q", k, s.Labels[k], v)
		}
	}
	if !s.Spec.Approved || s.Spec.Token != "shops" || len(s.Spec.PublicKey) != 64 {
		t.Errorf("site %+v", s.Spec)
	}
	if !b.certified["paris-07"].Equal(cert.NotAfter) {
		t.Errorf("its certificate was told of as good until %s, and is until %s", b.certified["paris-07"], cert.NotAfter)
	}
	if rt := b.rt("shops"); rt.Status.Uses != 1 || rt.Status.LastUsed == nil || rt.Status.State != "Active" {
		t.Errorf("token status %+v", rt.Status)
	}
	r := b.records()
	if len(r) != 1 || r[0].Result != "granted" || r[0].Site != "paris-07" || r[0].Token != "shops" || r[0].RemoteAddr != "192.0.2.7:4711" || r[0].Key != s.Spec.PublicKey {
		t.Errorf("audit %+v", r)
	}
	if len(b.events.all) != 1 || !strings.Contains(b.events.all[0], "Normal SiteRegistered shops") {
		t.Errorf("events %q", b.events.all)
	}
}

func TestPendingUntilApproved(t *testing.T) {
	b := newBench(t)
	tok, key := b.token("manual", v1alpha1.RegistrationTokenSpec{MaxUses: 1}), newKey(t)
	for range 3 { // the agent asks again and again
		resp, err := b.register(tok, "lyon", key)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Issued != nil || resp.RetryAfter.AsDuration() <= 0 || !strings.Contains(resp.Message, "muster approve lyon --tenant acme") {
			t.Fatalf("response %v", resp)
		}
	}
	s := b.site("lyon")
	if s.Spec.Approved || b.rt("manual").Status.Uses != 1 || b.rt("manual").Status.State != "Exhausted" {
		t.Errorf("approved %v, token %+v", s.Spec.Approved, b.rt("manual").Status)
	}
	if n := len(b.records()); n != 1 {
		t.Errorf("%d audit records for one registration that waits, want 1", n)
	}
	s.Spec.Approved = true
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	resp, err := b.register(tok, "lyon", key)
	if err != nil || resp.Issued == nil {
		t.Fatalf("after approval: %v, %v", resp, err)
	}
	if b.count(Granted) != 1 || b.count(Pending) != 3 {
		t.Errorf("granted %v, pending %v", b.count(Granted), b.count(Pending))
	}
}

func TestRefusalsLeaveARecordAndNoSite(t *testing.T) {
	past := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, tc := range map[string]struct {
		spec   v1alpha1.RegistrationTokenSpec
		mangle func(*bench, *Token)
		site   string
		result Result
		code   codes.Code
		words  []string
		noObj  bool // the token does not exist: no event
	}{
		"forged secret":     {mangle: func(_ *bench, k *Token) { k.Secret = must(NewToken("acme", "x")).Secret }, result: BadToken, code: codes.PermissionDenied, words: []string{"not known, or its secret is wrong"}},
		"no such token":     {mangle: func(_ *bench, k *Token) { k.Name = "other" }, result: BadToken, code: codes.PermissionDenied, noObj: true},
		"wrong tenant":      {mangle: func(_ *bench, k *Token) { k.Tenant = "globex" }, result: BadToken, code: codes.PermissionDenied, noObj: true},
		"expired":           {spec: v1alpha1.RegistrationTokenSpec{Expires: &past}, result: Expired, code: codes.PermissionDenied, words: []string{"expired at", "muster token create"}},
		"revoked":           {spec: v1alpha1.RegistrationTokenSpec{Revoked: true}, result: Revoked, code: codes.PermissionDenied, words: []string{"revoked", "muster token create"}},
		"used up":           {spec: v1alpha1.RegistrationTokenSpec{MaxUses: 1}, mangle: func(b *bench, k *Token) { mustDo(b.register(*k, "first", newKey(b.t))) }, result: Exhausted, code: codes.PermissionDenied, words: []string{"used up (1 of 1)"}},
		"pattern":           {spec: v1alpha1.RegistrationTokenSpec{SiteNamePattern: "shop-[0-9]+"}, site: "shop-1x", result: BadName, code: codes.PermissionDenied, words: []string{"shop-[0-9]+", "--site"}},
		"pattern is broken": {spec: v1alpha1.RegistrationTokenSpec{SiteNamePattern: "("}, result: BadPolicy, code: codes.FailedPrecondition, words: []string{"siteNamePattern"}},
		"name":              {site: "../etc", result: BadName, code: codes.InvalidArgument, words: []string{"--site"}},
		"name taken":        {mangle: func(b *bench, k *Token) { mustDo(b.register(*k, "paris", newKey(b.t))) }, result: NameTaken, code: codes.AlreadyExists, words: []string{"paris", "--site"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tok := b.token("tok", tc.spec)
			if tc.mangle != nil {
				tc.mangle(b, &tok)
			}
			before, seen := len(b.sites()), len(b.records0())
			uses := b.rt("tok").Status.Uses
			b.events.all = nil
			if tc.site == "" {
				tc.site = "paris"
			}
			_, err := b.register(tok, tc.site, newKey(t))
			wantRefusal(t, err, tc.code, tc.words...)
			if n := len(b.sites()); n != before {
				t.Errorf("%d sites, want %d", n, before)
			}
			if b.rt("tok").Status.Uses != uses {
				t.Errorf("a refusal counted a use")
			}
			r := b.records()[seen:]
			if len(r) != 1 || r[0].Result != string(tc.result) || r[0].Message == "" {
				t.Errorf("audit %+v, want one %s", r, tc.result)
			}
			if raw, _ := os.ReadFile(b.audit); strings.Contains(string(raw), tok.Secret) {
				t.Error("the secret is in the audit file")
			}
			if b.count(tc.result) != 1 {
				t.Errorf("metric %v", b.count(tc.result))
			}
			if want := map[bool]int{true: 0, false: 1}[tc.noObj]; len(b.events.all) != want {
				t.Errorf("events %q, want %d", b.events.all, want)
			}
		})
	}
}

func (b *bench) records0() []Record {
	if _, err := os.Stat(b.audit); err != nil {
		return nil
	}
	return b.records()
}

func must(t Token, err error) Token {
	if err != nil {
		panic(err)
	}
	return t
}

func mustDo(_ *wire.RegisterResponse, err error) {
	if err != nil {
		panic(err)
	}
}

// TestForgersLearnNothing: what exists and what does not answer with the same words.
func TestForgersLearnNothing(t *testing.T) {
	b := newBench(t)
	b.token("real", v1alpha1.RegistrationTokenSpec{Revoked: true})
	var texts []string
	for _, tok := range []Token{must(NewToken("acme", "real")), must(NewToken("acme", "nope")), must(NewToken("nope", "real"))} {
		_, err := b.register(tok, "", newKey(t))
		texts = append(texts, fmt.Sprint(status.Code(err), err))
	}
	if texts[0] != texts[1] || texts[1] != texts[2] {
		t.Errorf("answers differ:\n%s", strings.Join(texts, "\n"))
	}
}

func TestSameKeyIsTheSameSite(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 2})
	key := newKey(t)
	for range 3 {
		resp, err := b.register(tok, "paris", key)
		if err != nil || resp.Site != "paris" || resp.Issued == nil {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	if resp, err := b.register(tok, "", key); err != nil || resp.Site != "paris" { // no wanted name: the one it has
		t.Errorf("%v, %v", resp, err)
	}
	_, err := b.register(tok, "lyon", key)
	wantRefusal(t, err, codes.AlreadyExists, "registered as site paris")
	if n := b.rt("tok").Status.Uses; n != 1 {
		t.Errorf("%d uses", n)
	}
	if len(b.sites()) != 1 {
		t.Errorf("%d sites", len(b.sites()))
	}
}

func TestParallelRetriesOfOneMachineMakeOneSite(t *testing.T) {
	b := newBench(t)
	tok, key := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true}), newKey(t)
	// The first attempt is held up so that another one could look for its site meanwhile.
	var once sync.Once
	b.faults.Create = func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		once.Do(func() {
			select {
			case <-b.looked:
			case <-time.After(100 * time.Millisecond):
			}
		})
		return c.Create(ctx, o)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := b.register(tok, "", key); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(b.sites()) != 1 || b.rt("tok").Status.Uses != 1 {
		t.Errorf("%d sites, %d uses", len(b.sites()), b.rt("tok").Status.Uses)
	}
}

func TestReEnrolAfterTheTokenIsGone(t *testing.T) {
	b := newBench(t)
	soon := metav1.NewTime(b.now.Add(time.Hour))
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1, Expires: &soon})
	key := newKey(t)
	mustDo(b.register(tok, "paris", key))
	b.now = b.now.Add(30 * 24 * time.Hour) // certificate and token are long over
	resp, err := b.register(tok, "paris", key)
	if err != nil || resp.Issued == nil {
		t.Fatalf("re-enrolment: %v", err)
	}
	if b.count(Reissued) != 1 {
		t.Errorf("reissued %v", b.count(Reissued))
	}
	// Another machine must not slip in on the same way.
	_, err = b.register(tok, "lyon", newKey(t))
	wantRefusal(t, err, codes.PermissionDenied, "expired")

	rt := b.rt("tok")
	rt.Spec.Revoked = true
	if err := b.client.Update(t.Context(), rt); err != nil {
		t.Fatal(err)
	}
	_, err = b.register(tok, "paris", key)
	wantRefusal(t, err, codes.PermissionDenied, "revoked")

	// A new token lets the old key in again, as the same site, and spends nothing.
	tok2 := b.token("tok2", v1alpha1.RegistrationTokenSpec{MaxUses: 1})
	if resp, err := b.register(tok2, "paris", key); err != nil || resp.Issued == nil {
		t.Errorf("with a new token: %v", err)
	}
	if b.rt("tok2").Status.Uses != 0 {
		t.Error("re-enrolment spent a use")
	}

	s := b.site("paris")
	s.Spec.Decommissioned = true
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err = b.register(tok2, "paris", key)
	wantRefusal(t, err, codes.PermissionDenied, "decommissioned")
}

// A cache that lags makes nothing wrong: not a second site of a key, not a use more, not a
// machine refused that the API server lets in, not a certificate for a site that is gone.
func TestACacheThatLags(t *testing.T) {
	b := newBench(t)
	cache := fake.NewClientBuilder().WithScheme(b.client.Scheme()).WithIndex(&v1alpha1.Site{}, keyIndex, func(o client.Object) []string {
		return []string{o.(*v1alpha1.Site).Spec.PublicKey}
	}).WithObjects(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}).Build()
	know := func(o client.Object) {
		t.Helper()
		o.SetResourceVersion("")
		if err := cache.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	b.svc.opts.Cache = cache
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1})
	key := newKey(t)
	for range 3 { // the cache knows neither the token nor the site
		if resp, err := b.register(tok, "paris", key); err != nil || resp.Site != "paris" {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	if n := b.rt("tok").Status.Uses; n != 1 || len(b.sites()) != 1 {
		t.Errorf("%d uses, %d sites; want one of each", n, len(b.sites()))
	}

	stale := b.rt("tok")
	stale.Status.Uses = 0
	know(stale)
	_, err := b.register(tok, "rome", newKey(t))
	wantRefusal(t, err, codes.PermissionDenied, "used up")
	more := b.rt("tok")
	more.Spec.MaxUses = 2
	if err := b.client.Update(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	stale.Status.Uses = 1
	if err := cache.Update(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if _, err := b.register(tok, "rome", newKey(t)); err != nil {
		t.Errorf("a token that was given a use more: %v", err)
	}

	know(b.site("paris"))
	gone := b.site("paris")
	gone.Spec.Decommissioned = true
	if err := b.client.Update(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	_, err = b.register(tok, "paris", key)
	wantRefusal(t, err, codes.PermissionDenied, "decommissioned")
}

func TestParallelRegistrationsNeverExceedMaxUses(t *testing.T) {
	const machines, uses = 60, 17
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: uses})
	// A second replica of control competes over the same API server.
	other := New(Options{Client: b.client, Issuer: b.ca, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[codes.Code]int{}
	for i := range machines {
		svc := []*Service{b.svc, other}[i%2]
		req := &wire.RegisterRequest{Token: tok.String(), Csr: csrOf(t, newKey(t)), Site: fmt.Sprintf("m-%02d", i)}
		wg.Go(func() {
			_, err := svc.Register(t.Context(), req, "192.0.2.1:1")
			mu.Lock()
			got[status.Code(err)]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if got[codes.OK] != uses || got[codes.PermissionDenied] != machines-uses {
		t.Errorf("answers %v, want %d OK", got, uses)
	}
	if n := b.rt("tok").Status.Uses; n != uses || len(b.sites()) != uses {
		t.Errorf("%d uses, %d sites, want %d", n, len(b.sites()), uses)
	}
}

func TestQuota(t *testing.T) {
	b := newBench(t)
	var tn v1alpha1.Tenant
	if err := b.client.Get(t.Context(), types.NamespacedName{Name: "acme"}, &tn); err != nil {
		t.Fatal(err)
	}
	tn.Spec.Quotas.Sites = 5
	if err := b.client.Update(t.Context(), &tn); err != nil {
		t.Fatal(err)
	}
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := b.register(tok, fmt.Sprintf("m-%02d", i), newKey(t)); err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(b.sites()); n != 5 {
		t.Fatalf("%d sites, want 5", n)
	}
	s := b.sites()[0]
	s.Spec.Decommissioned = true
	if err := b.client.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(5 * time.Second)
	if _, err := b.register(tok, "late", newKey(t)); err != nil {
		t.Errorf("a decommissioned site still takes room: %v", err)
	}
	_, err := b.register(tok, "later", newKey(t))
	wantRefusal(t, err, codes.ResourceExhausted, "spec.quotas.sites")
	if n := b.rt("tok").Status.Uses; n != 6 {
		t.Errorf("%d uses, want 6", n)
	}
}

// A tenant that says nothing has the installation's quota, one that says -1 none. Sites from
// before the quota come back.
func TestQuotaOfTheInstallation(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	var keys []crypto.Signer
	name := func() string { return fmt.Sprintf("m-%02d", len(keys)) }
	for range 3 {
		key := newKey(t)
		if _, err := b.register(tok, name(), key); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	b.svc.opts.SiteQuota = 2
	for i, key := range keys {
		if _, err := b.register(tok, fmt.Sprintf("m-%02d", i), key); err != nil {
			t.Errorf("site %d from before comes back: %v", i, err)
		}
	}
	_, err := b.register(tok, name(), newKey(t))
	wantRefusal(t, err, codes.ResourceExhausted, "has 3 sites and may have 2", "spec.quotas.sites")
	var tn v1alpha1.Tenant
	if err := b.client.Get(t.Context(), types.NamespacedName{Name: "acme"}, &tn); err != nil {
		t.Fatal(err)
	}
	tn.Spec.Quotas.Sites = -1
	if err := b.client.Update(t.Context(), &tn); err != nil {
		t.Fatal(err)
	}
	if _, err := b.register(tok, name(), newKey(t)); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

func TestDerivedNames(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	first, err := b.register(tok, "", newKey(t))
	if err != nil || first.Site != "box-example" {
		t.Fatalf("%v, %v", first, err)
	}
	second, err := b.register(tok, "", newKey(t)) // a clone of the first machine's disk image
	if err != nil || !strings.HasPrefix(second.Site, "box-example-") {
		t.Fatalf("%v, %v", second, err)
	}
	third, err := b.svc.Register(t.Context(), &wire.RegisterRequest{Token: tok.String(), Csr: csrOf(t, newKey(t))}, "")
	if err != nil || !strings.HasPrefix(third.Site, "site-") {
		t.Fatalf("%v, %v", third, err)
	}
}

func TestClaimASiteMadeByHand(t *testing.T) {
	b := newBench(t, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "paris", Labels: map[string]string{"region": "by-hand"}},
		Spec: v1alpha1.SiteSpec{Approved: true, Place: &v1alpha1.Place{Latitude: "48.8", Longitude: "2.3"}}})
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{MaxUses: 5, SiteLabels: map[string]string{"region": "token", "extra": "yes"}})
	resp, err := b.register(tok, "paris", newKey(t))
	if err != nil || resp.Issued == nil {
		t.Fatalf("%v, %v", resp, err)
	}
	if s := b.site("paris"); s.Labels["region"] != "by-hand" || s.Labels["extra"] != "yes" || s.Spec.Place == nil || s.Spec.PublicKey == "" {
		t.Errorf("site %+v", s)
	}
	_, err = b.register(tok, "paris", newKey(t))
	wantRefusal(t, err, codes.AlreadyExists)
}

func TestAFailureGivesTheUseBack(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1})
	b.faults.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewInternalError(errors.New("etcd is away"))
	}
	key := newKey(t)
	_, err := b.register(tok, "paris", key)
	wantRefusal(t, err, codes.Unavailable, "try again")
	if strings.Contains(err.Error(), "etcd") {
		t.Errorf("the machine is told of our insides: %v", err)
	}
	if n := b.rt("tok").Status.Uses; n != 0 {
		t.Errorf("%d uses after a failure", n)
	}
	// The API server refuses what the token stamps: clear, no Site, no use.
	b.faults.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Site").GroupKind(), "paris", nil)
	}
	_, err = b.register(tok, "paris", key)
	wantRefusal(t, err, codes.FailedPrecondition, "registration token tok stamps")
	if n := b.rt("tok").Status.Uses; n != 0 {
		t.Errorf("%d uses after a refusal", n)
	}
	// The answer is lost, the Site is made: the retry finds it, and one use is counted.
	b.faults.Create = func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
		return apierrors.NewTimeoutError("lost", 1)
	}
	if resp, err := b.register(tok, "paris", key); err != nil || resp.Issued == nil {
		t.Errorf("%v, %v", resp, err)
	}
	if n := b.rt("tok").Status.Uses; n != 1 {
		t.Errorf("%d uses, want 1", n)
	}
}

func TestAMachineThatHangsUpLeavesNothingHalfDone(t *testing.T) {
	b := newBench(t)
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1})
	ctx, cancel := context.WithCancel(t.Context())
	b.faults.Create = func(c context.Context, cl client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		cancel()
		if c.Err() != nil {
			return c.Err()
		}
		return cl.Create(c, o)
	}
	if _, err := b.svc.Register(ctx, &wire.RegisterRequest{Token: tok.String(), Csr: csrOf(t, newKey(t)), Site: "paris"}, ""); err != nil {
		t.Error(err)
	}
	if len(b.sites()) != 1 || b.rt("tok").Status.Uses != 1 {
		t.Errorf("%d sites, %d uses", len(b.sites()), b.rt("tok").Status.Uses)
	}
}

func TestRenew(t *testing.T) {
	b := newBench(t)
	tok, key := b.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true}), newKey(t)
	mustDo(b.register(tok, "paris", key))
	id := fleet.SiteID{Tenant: "acme", Name: "paris"}
	b.site("paris")
	issued, err := b.svc.Renew(t.Context(), id, csrOf(t, key))
	if err != nil || len(issued.CertificatePem) == 0 {
		t.Fatalf("%v, %v", issued, err)
	}
	_, err = b.svc.Renew(t.Context(), id, csrOf(t, newKey(t)))
	wantRefusal(t, err, codes.PermissionDenied, "another key")
	_, err = b.svc.Renew(t.Context(), id, []byte("x"))
	wantRefusal(t, err, codes.InvalidArgument)
	_, err = b.svc.Renew(t.Context(), fleet.SiteID{Tenant: "acme", Name: "gone"}, csrOf(t, key))
	wantRefusal(t, err, codes.PermissionDenied, "does not exist")
	_, err = b.svc.Renew(t.Context(), fleet.SiteID{Tenant: "../", Name: "gone"}, csrOf(t, key))
	wantRefusal(t, err, codes.InvalidArgument)
	s := b.site("paris")
	s.Spec.Approved = false
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err = b.svc.Renew(t.Context(), id, csrOf(t, key))
	wantRefusal(t, err, codes.PermissionDenied, "not approved")
	s.Spec.Decommissioned = true
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	_, err = b.svc.Renew(t.Context(), id, csrOf(t, key))
	wantRefusal(t, err, codes.PermissionDenied, "decommissioned")
	if b.count(Renewed) != 1 {
		t.Errorf("renewed %v", b.count(Renewed))
	}
}

func TestAuditRotatesAndCountsFloods(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit", "log")
	now := time.Now()
	a, err := OpenAudit(AuditOptions{File: file, MaxBytes: 1000, Keep: 2, PerMinute: 5, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := a.Write("203.0.113.9", Record{Result: "bad_token", Tenant: "acme"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Write("192.0.2.1", Record{Result: "granted", Site: "paris"}); err != nil {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(file)
	if n := strings.Count(string(raw), "\n"); n != 6 || !strings.Contains(string(raw), "paris") {
		t.Errorf("%d lines of a flood, want 5 and the grant", n)
	}
	now = now.Add(2 * time.Minute)
	for i := range 60 {
		if err := a.Write(fmt.Sprint(i), Record{Result: "granted", Site: "lyon"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(file + "*")
	if len(files) != 3 {
		t.Errorf("files %v, want the log and 2 older", files)
	}
	for _, f := range files {
		if st, _ := os.Stat(f); st.Size() > 1000 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %d bytes, mode %o", f, st.Size(), st.Mode().Perm())
		}
	}
}

func TestFloodIsSummedUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	a, err := OpenAudit(AuditOptions{File: file, PerMinute: 5})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := a.Write("x", Record{Result: "bad_token"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	raw, _ := os.ReadFile(file)
	if !strings.Contains(string(raw), `"suppressed":95`) {
		t.Errorf("audit:\n%s", raw)
	}
}

func TestTokenRoundTrip(t *testing.T) {
	tok := must(NewToken("acme", "shops-2026"))
	if got, err := ParseToken(tok.String()); err != nil || got != tok {
		t.Errorf("ParseToken = %v, %v", got, err)
	}
	for _, bad := range []string{"", "muster1", "muster2." + tok.String()[8:], tok.String() + "x", tok.String() + ".x", "muster1.acme.x.", "muster1.ACME.x." + tok.Secret,
		"muster1.acme.x." + tok.Secret[:42] + "!", strings.Repeat("a", 10000)} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%.80q accepted", bad)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(must(NewToken("acme", "shops")).String())
	f.Add("muster1.a.b.c")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := ParseToken(s)
		if err == nil && tok.String() != s {
			t.Errorf("%q is read as %q: a token has one spelling", s, tok.String())
		}
		if err != nil && len(s) > 8 && strings.Contains(err.Error(), s) {
			t.Errorf("the error repeats the input: %v", err)
		}
	})
}

// FuzzRegister: whatever a stranger sends, no Site and no panic.
func FuzzRegister(f *testing.F) {
	f.Add("muster1.acme.tok.x", []byte("csr"), "site", "hostname", "value")
	b := newBench(f)
	b.t = f
	tok := b.token("tok", v1alpha1.RegistrationTokenSpec{})
	f.Add(must(NewToken("acme", "tok")).String(), csrOf(f, newKey(f)), "../x", "hostname", "\x00")
	f.Fuzz(func(t *testing.T, token string, csr []byte, site, k, v string) {
		if token == tok.String() {
			return
		}
		_, err := b.svc.Register(t.Context(), &wire.RegisterRequest{Token: token, Csr: csr, Site: site, SystemLabels: map[string]string{k: v}, AgentVersion: v}, k)
		if err == nil {
			t.Error("a stranger registered")
		}
	})
}

// behind is a cache that has not heard of anything since it was made: it knows tokens and
// tenants as they were, and no Site.
type behind struct{ then client.Reader }

func (c behind) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*v1alpha1.Site); is {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("sites").GroupResource(), k.Name)
	}
	return c.then.Get(ctx, k, o, opts...)
}

func (behind) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// Whether a name is free is asked of the cache alone; one that is behind lets nobody have
// another's name, refuses nobody whose Site it does not know yet, and costs no use.
func TestACacheThatIsBehind(t *testing.T) {
	b := newBench(t)
	once := b.token("once", v1alpha1.RegistrationTokenSpec{AutoApprove: true, MaxUses: 1})
	many := b.token("many", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	b.svc.opts.Cache = behind{fake.NewClientBuilder().WithScheme(b.client.Scheme()).WithObjects(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}, b.rt("once"), b.rt("many")).Build()}
	key := newKey(t)
	for range 3 { // its answer was lost, twice
		resp, err := b.register(once, "paris", key)
		if err != nil || resp.Issued == nil || resp.Site != "paris" {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	if n := b.rt("once").Status.Uses; n != 1 {
		t.Errorf("one machine counts as %d uses", n)
	}
	_, err := b.register(once, "lyon", newKey(t))
	wantRefusal(t, err, codes.PermissionDenied, "used up")
	_, err = b.register(many, "paris", newKey(t))
	wantRefusal(t, err, codes.AlreadyExists, "paris")
	if n := b.rt("many").Status.Uses; n != 0 {
		t.Errorf("a name that is another's counts as %d uses", n)
	}
	// Of a host name that another machine has, the machine gets one of its own.
	for i, want := range []string{"box-example", "box-example-"} {
		resp, err := b.register(many, "", newKey(t))
		if err != nil || resp.Issued == nil || i == 0 && resp.Site != want || !strings.HasPrefix(resp.Site, want) {
			t.Errorf("%v, %v, want a site %s", resp, err, want)
		}
	}
	// A Site that somebody made for it by hand it claims.
	if err := b.client.Create(t.Context(), &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "nice", Labels: map[string]string{"floor": "2"}}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := b.register(many, "nice", newKey(t)); err != nil || resp.Site != "nice" || b.site("nice").Labels["floor"] != "2" {
		t.Errorf("%v, %v", resp, err)
	}
	if got, want := b.rt("many").Status.Uses, int32(3); got != want || len(b.sites()) != 4 {
		t.Errorf("%d uses and %d sites, want %d and 4", got, len(b.sites()), want)
	}
}

func BenchmarkRegister(b *testing.B) {
	n := newBench(b)
	tok := n.token("tok", v1alpha1.RegistrationTokenSpec{AutoApprove: true})
	for i := 0; b.Loop(); i++ {
		if _, err := n.register(tok, fmt.Sprintf("m-%d", i), newKey(b)); err != nil {
			b.Fatal(err)
		}
	}
}
