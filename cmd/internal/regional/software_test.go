package regional

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sigstore/sigstore/pkg/signature"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/control/software/repository"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/remotewrite"
	sw "muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	base "muster.dev/muster/regional"
	"muster.dev/muster/regional/engine"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/software"
)

// noControl is a relay that nobody asks for more than whom it refuses.
type noControl struct{ base.Upstream }

func (noControl) Denied(id fleet.SiteID, _ *x509.Certificate) (string, bool) {
	return "decommissioned", id.Name == "gone"
}

// chain is the way of software: a repository, control's listener, a regional's gateway.
type chain struct {
	t       *testing.T
	ca      *pki.CA
	repo    publish.Repository
	root    []byte
	store   publish.Dir
	centre  *httptest.Server
	asked   atomic.Int64 // for files
	sent    atomic.Int64 // bytes of control's answers
	down    atomic.Bool
	hold    func() // before control answers with a file; nil: at once
	serving *software.Server
	reg     *prometheus.Registry
	gw      *gateway.Gateway
	keys    *ecdsa.PrivateKey
	wanted  chosen
}

// chosen is what control wants sites to hold: a version of the tenant's, or of everybody's
// (""), of each file.
type chosen struct {
	mu       sync.Mutex
	byTenant map[string][]*wire.Item
	blobs    map[string][]byte
}

func (c *chosen) choose(tenant string, t bundle.Target) {
	blob := (&sw.Wanted{Component: "os", Version: "1.0.0", Files: []sw.File{{Architecture: "any", Target: t.Name, Digest: t.Digest, Size: t.Size}}}).Encode()
	it := &wire.Item{Kind: sw.Kind, Name: "os", Digest: wire.DigestOf(blob), Size: int64(len(blob))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTenant == nil {
		c.byTenant, c.blobs = map[string][]*wire.Item{}, map[string][]byte{}
	}
	c.byTenant[tenant], c.blobs[it.Digest] = append(c.byTenant[tenant], it), blob
}

// Items implements software.Desired.
func (c *chosen) Items(id fleet.SiteID, _ string) ([]*wire.Item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.byTenant[id.Tenant], c.byTenant[""]), id.Name != "unheard"
}

// Blob implements software.Desired.
func (c *chosen) Blob(_ context.Context, _ fleet.SiteID, digest string, _ int64, send func([]byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return send(c.blobs[digest])
}

func newKey(t *testing.T) []signature.Signer {
	t.Helper()
	b, err := publish.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := publish.ReadKey(b)
	if err != nil {
		t.Fatal(err)
	}
	return []signature.Signer{s}
}

func newChain(t *testing.T, change func(*software.Options)) *chain {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	x := &chain{t: t, reg: prometheus.NewRegistry(), store: publish.Dir{Path: t.TempDir()}}
	x.repo = publish.Repository{Store: x.store, Keys: publish.Keys{Root: newKey(t), Targets: newKey(t), Snapshot: newKey(t), Timestamp: newKey(t)}}
	var err error
	x.root, err = x.repo.Init(t.Context())
	must(err)

	c := config.Default()
	c.DataDir = t.TempDir()
	x.ca, err = pki.Open(pki.Options{Dir: filepath.Join(c.DataDir, "pki"), TrustDomain: c.TrustDomain})
	must(err)
	_, err = x.ca.EnsureControl(c.Identity("control"), nil)
	must(err)
	_, err = x.ca.EnsureRegional(c.Identity("regional-one"), "one", []string{"127.0.0.1"})
	must(err)
	x.keys, err = ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	must(err)

	served, err := repository.Open(t.Context(), repository.Options{Dir: x.store.Path})
	must(err)
	mux := http.NewServeMux()
	served.Register(mux)
	x.centre = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x.down.Load() {
			panic(http.ErrAbortHandler)
		}
		if !strings.Contains(r.URL.Path, delivery.MetadataPath) {
			x.asked.Add(1)
			if x.hold != nil {
				x.hold()
			}
		}
		mux.ServeHTTP(&counting{w, &x.sent}, r)
	}))
	control, err := c.OpenPeers("control")
	must(err)
	control.Listener(config.OpsRules("control")).Secure(x.centre.Config, slog.New(slog.DiscardHandler))
	x.centre.TLS = x.centre.Config.TLSConfig
	x.centre.StartTLS()
	t.Cleanup(x.centre.Close)
	c.Control.OpsListen = x.centre.Listener.Addr().String()

	known, err := c.OpenPeers("regional-one")
	must(err)
	o := software.Options{Dir: filepath.Join(t.TempDir(), "software"), Centre: &delivery.Fetcher{URL: c.ControlURL() + software.Prefix, Client: known.Client()}, Identify: gateway.Identity, Desired: &x.wanted, Registerer: x.reg}
	if change != nil {
		change(&o)
	}
	x.serving, err = software.New(o)
	must(err)
	files, err := identity.LoadFiles(c.PairFile("regional-one"), c.TrustFile("regional-one"))
	must(err)
	series := gateway.NewHeadSeries(nil)
	edge, err := engine.New(engine.Options{Name: engine.Edge, Dir: t.TempDir(), SeriesLifecycle: series, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	must(err)
	t.Cleanup(func() { _ = edge.Close() })
	put := func(string, []remotewrite.Series) (func() error, error) {
		return func() error { return nil }, nil
	}
	x.gw, err = gateway.New(gateway.Options{Name: "one", Listen: "127.0.0.1:0", TLS: files.ServerConfig(tls.RequestClientCert), Trust: trust(files), Software: x.serving,
		Edge: edge.Storage(), Series: series, Forward: put, Upstream: noControl{}, BodyTimeout: time.Second})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = x.gw.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return x
}

// counting counts bytes of answers.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write implements http.ResponseWriter.
func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// site is the client of a site; an empty name has no certificate.
func (x *chain) site(tenant, name string) *delivery.Fetcher {
	x.t.Helper()
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // whom it talks to is not at issue here
	if name != "" {
		issued, err := x.ca.IssueSite(x.keys.Public(), fleet.SiteID{Tenant: tenant, Name: name}, "")
		if err != nil {
			x.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{issued.Leaf.Raw}, PrivateKey: x.keys}}
	}
	tr := &http.Transport{TLSClientConfig: c}
	x.t.Cleanup(tr.CloseIdleConnections)
	return &delivery.Fetcher{URL: "https://" + x.gw.Addr().String() + software.Prefix, Client: &http.Client{Transport: tr}}
}

// release adds a version that all sites shall run.
func (x *chain) release(version string, content []byte) bundle.Target {
	x.t.Helper()
	target := x.add(version, content)
	x.wanted.choose("", target)
	return target
}

// add adds a version that nobody asks for.
func (x *chain) add(version string, content []byte) bundle.Target {
	x.t.Helper()
	target, err := x.repo.Add(x.t.Context(), "os/"+version, bundle.About{Component: "os", Version: version, Architecture: "any"}, bytes.NewReader(content))
	if err != nil {
		x.t.Fatal(err)
	}
	return target
}

func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func statusOf(err error) int {
	var s *delivery.StatusError
	switch {
	case errors.As(err, &s):
		return s.Code
	case errors.Is(err, fs.ErrNotExist):
		return http.StatusNotFound
	case err == nil:
		return http.StatusOK
	}
	return 0
}

// A release goes from the repository over control and the regional to sites, which trust
// none of them: whole, and as a delta, while control is there and while it is not.
func TestSoftwareFromTheCentreToSites(t *testing.T) {
	x := newChain(t, nil)
	one := noise(1, 8<<20)
	two := bytes.Join([][]byte{one[:3<<20], noise(2, 80<<10), one[3<<20:]}, nil)
	old, next := x.release("1.0.0", one), x.release("2.0.0", two)
	if _, err := x.repo.AddDelta(t.Context(), old, next, bytes.NewReader(one), bytes.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	get := func(name string) {
		t.Helper()
		f := x.site("acme", name)
		b, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: x.root})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Refresh(t.Context(), f); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		was, err := b.Target("os/1.0.0", "os", "1.0.0")
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(t.TempDir(), "one")
		if err := f.File(t.Context(), was.Digest, was.Size, at); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		now, err := b.Target("os/2.0.0", "os", "2.0.0")
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "two")
		if err := f.Delta(t.Context(), was.Digest, in, was.Size, now.Digest, now.Size, to); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(to); !bytes.Equal(got, two) {
			t.Errorf("%s: the delta made something else", name)
		}
	}
	get("paris")
	if n := x.asked.Load(); n != 2 {
		t.Errorf("control was asked %d times for a file and a delta", n)
	}
	x.down.Store(true)
	get("lyon")
	if code := statusOf(x.site("acme", "lyon").File(t.Context(), next.Digest, next.Size, filepath.Join(t.TempDir(), "f"))); code != http.StatusServiceUnavailable {
		t.Errorf("what the regional lacks while control is away: %d", code)
	}
}

// A thousand sites of ten tenants want a version at once; more than may at a time are told
// to come again. All get it, and control sends it once.
func TestThousandSitesCostTheCentreOneFetch(t *testing.T) {
	x := newChain(t, func(o *software.Options) { o.Downloads, o.BytesPerSecond = 100, 0 })
	image := noise(1, 256<<10)
	target := x.release("1.0.0", image)
	var wg sync.WaitGroup
	var turned atomic.Int64
	x.hold = func() { // until there are as many as may be, and some have been turned away
		for turned.Load() < 100 && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	for i := range 1000 {
		f := x.site(fmt.Sprintf("tenant-%d", i%10), fmt.Sprintf("site-%d", i))
		wg.Go(func() {
			for {
				in, size, err := f.Open(t.Context(), delivery.BlobPath+target.Digest, 0)
				if code := statusOf(err); code == http.StatusServiceUnavailable {
					turned.Add(1)
					select {
					case <-time.After(50 * time.Millisecond): // the test has no 20 s to come again in
						continue
					case <-t.Context().Done():
						return
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(in)
				_ = in.Close()
				if err != nil || size != int64(len(image)) || !bytes.Equal(got, image) {
					t.Errorf("site %d: %d bytes, %v", i, len(got), err)
				}
				f.Client.CloseIdleConnections()
				return
			}
		})
	}
	wg.Wait()
	if n := x.asked.Load(); n != 1 {
		t.Errorf("control was asked %d times", n)
	}
	if n := x.sent.Load(); n > int64(len(image)) {
		t.Errorf("control sent %d bytes of an image of %d", n, len(image))
	}
	t.Logf("1000 sites, %d bytes each; turned away for a moment %d times; control was asked once and sent %d bytes", len(image), turned.Load(), x.sent.Load())
}

// One per cent of an image changes, scattered in pages of 4 KiB: what control sends to the
// regional and the regional to each of ten sites, the metadata included.
func TestOnePercentThroughTheChain(t *testing.T) {
	x := newChain(t, nil)
	one := noise(1, 32<<20)
	two := bytes.Clone(one)
	pages := rand.New(rand.NewPCG(1, 2)).Perm(len(one) >> 12)[:len(one)>>12/100]
	for i, page := range pages {
		copy(two[page<<12:], noise(byte(i), 4<<10))
	}
	old := x.release("1.0.0", one)
	next := bundle.Target{Name: "os/2.0.0", Digest: digestOf(two), Size: int64(len(two))}
	if _, err := x.repo.AddDelta(t.Context(), old, next, bytes.NewReader(one), bytes.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	x.release("2.0.0", two)
	for i := range 10 {
		f := x.site("acme", fmt.Sprintf("site-%d", i))
		b, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: x.root})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Refresh(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		now, err := b.Target("os/2.0.0", "os", "2.0.0")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Delta(t.Context(), old.Digest, bytes.NewReader(one), old.Size, now.Digest, now.Size, filepath.Join(t.TempDir(), "two")); err != nil {
			t.Fatal(err)
		}
	}
	centre, site := x.sent.Load(), x.sentToSites()/10
	if most := int64(len(one)) * 12 / 1000; centre > most || site > most {
		t.Errorf("control sent %d bytes, the regional %d to each site; want at most %d", centre, site, most)
	}
	t.Logf("image of %d bytes: control sent %d bytes (%.2f %%), the regional %d to each of 10 sites (%.2f %%)", len(one), centre, float64(centre)*100/float64(len(one)), site, float64(site)*100/float64(len(one)))
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sentToSites is what the regional counts.
func (x *chain) sentToSites() int64 {
	x.t.Helper()
	all, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "muster_software_sent_bytes_total" {
			return int64(f.Metric[0].GetCounter().GetValue())
		}
	}
	x.t.Fatal("no muster_software_sent_bytes_total")
	return 0
}

// Who gets nothing, and what costs the centre nothing.
func TestAttackSoftware(t *testing.T) {
	x := newChain(t, nil)
	target := x.release("1.0.0", noise(1, 1<<20))
	open := func(f *delivery.Fetcher, path string) int {
		in, _, err := f.Open(t.Context(), path, 0)
		if err == nil {
			_ = in.Close()
		}
		return statusOf(err)
	}
	blob := delivery.BlobPath + target.Digest
	if code := open(x.site("", ""), blob); code != http.StatusUnauthorized {
		t.Errorf("no certificate: %d", code)
	}
	if code := open(x.site("acme", "gone"), blob); code != http.StatusUnauthorized {
		t.Errorf("a decommissioned site: %d", code)
	}
	evil := x.site("acme", "evil")
	for _, path := range []string{"/../../etc/passwd", "/blobs/sha256/../../timestamp.json", "/blobs/sha256/..%2f..%2ftimestamp.json", "/metadata/../1.root.json", "/metadata/%2e%2e/.lock", "/.lock",
		"/blobs/sha256/" + strings.ToUpper(target.Digest), "/deltas/" + target.Digest, "/", "", "//blobs/sha256/" + target.Digest + "/"} {
		if code := open(evil, path); code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
	if n := x.asked.Load(); n != 0 {
		t.Errorf("control was asked for %d of them", n)
	}
	// Thousands of names that nobody made.
	codes := map[int]int{}
	for i := range 3000 {
		codes[open(evil, fmt.Sprintf("/deltas/%064x/%s", i, target.Digest))]++
	}
	if n := x.asked.Load(); n > 30 || codes[http.StatusTooManyRequests] < 2900 {
		t.Errorf("control was asked %d times; answers %v", n, codes)
	}
	before := x.asked.Load()
	for range 100 {
		open(evil, fmt.Sprintf("/deltas/%064x/%s", 0, target.Digest))
	}
	if n := x.asked.Load(); n != before {
		t.Errorf("control was asked %d times more for what it does not have", n-before)
	}
	// Others of the tenant are served meanwhile, the new file included.
	if code := open(x.site("acme", "paris"), blob); code != http.StatusOK {
		t.Errorf("another site meanwhile: %d", code)
	}
	// And the one itself with what is here.
	if code := open(evil, blob); code != http.StatusOK {
		t.Errorf("the same site, for what is here: %d", code)
	}
	ask := func(header string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, evil.URL+blob, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Range", header)
		resp, err := evil.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for header, want := range map[string]int{"bytes=99999999999999999999-": 416, "bytes=5000000-": 416, "bytes=0-1," + strings.Repeat("0-1,", 1000) + "0-1": 416, "bytes=-99999999": 206, "bytes=0-99999999999": 206} {
		if resp := ask(header); resp.StatusCode != want || resp.ContentLength > 1<<20 {
			t.Errorf("range %.40s: %d with %d bytes", header, resp.StatusCode, resp.ContentLength)
		}
	}
}

// A site has the files that its tenant's policies select for it: not another tenant's, not
// what was released and nobody chose, not as a delta, and not because another one has had
// it fetched already.
func TestASiteGetsWhatIsSelectedForIt(t *testing.T) {
	x := newChain(t, nil)
	a, idle := noise(1, 64<<10), noise(3, 64<<10)
	b := bytes.Join([][]byte{a, noise(2, 1<<10)}, nil)
	acme, umbrella, unchosen := x.add("1.0.0", a), x.add("2.0.0", b), x.add("3.0.0", idle)
	if _, err := x.repo.AddDelta(t.Context(), acme, umbrella, bytes.NewReader(a), bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	x.wanted.choose("acme", acme)
	x.wanted.choose("umbrella", umbrella)
	open := func(tenant, site, path string) int {
		in, _, err := x.site(tenant, site).Open(t.Context(), path, 0)
		if err == nil {
			_ = in.Close()
		}
		return statusOf(err)
	}
	for _, tt := range []struct {
		what, tenant, site, path string
		want                     int
	}{
		{"its own", "acme", "paris", delivery.BlobPath + acme.Digest, 200},
		{"the other's own", "umbrella", "tokyo", delivery.BlobPath + umbrella.Digest, 200},
		{"another tenant's, which is here", "acme", "paris", delivery.BlobPath + umbrella.Digest, 403},
		{"another tenant's, the other way", "umbrella", "tokyo", delivery.BlobPath + acme.Digest, 403},
		{"another tenant's, as a delta from its own", "acme", "paris", delivery.DeltaPath + acme.Digest + "/" + umbrella.Digest, 403},
		{"what nobody chose", "acme", "paris", delivery.BlobPath + unchosen.Digest, 403},
		{"what nobody made", "acme", "paris", delivery.BlobPath + digestOf(nil), 403},
		{"a site of which nothing is known yet", "acme", "unheard", delivery.BlobPath + acme.Digest, 503},
		{"a tenant that chose nothing", "initech", "austin", delivery.BlobPath + acme.Digest, 403},
	} {
		if code := open(tt.tenant, tt.site, tt.path); code != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, code, tt.want)
		}
	}
	if n := x.asked.Load(); n != 2 {
		t.Errorf("control was asked for %d files, and two were chosen", n)
	}
	// What signs it all is for everybody.
	if _, err := x.site("initech", "austin").Metadata(t.Context(), "timestamp.json", 1<<20); err != nil {
		t.Errorf("metadata: %v", err)
	}
}

// One site has two downloads at once, over whatever connections.
func TestOneSiteHoldsTwoDownloads(t *testing.T) {
	x := newChain(t, nil)
	target := x.release("1.0.0", noise(1, 64<<20)) // more than the sockets' buffers take
	blob := delivery.BlobPath + target.Digest
	var held []io.Closer
	for range 2 {
		in, _, err := x.site("acme", "greedy").Open(t.Context(), blob, 0)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, in)
	}
	if _, _, err := x.site("acme", "greedy").Open(t.Context(), blob, 0); statusOf(err) != http.StatusTooManyRequests {
		t.Errorf("a third one: %v", err)
	}
	for _, in := range held {
		_ = in.Close()
	}
	testkit.Eventually(t, "a place again", func() error {
		in, _, err := x.site("acme", "greedy").Open(t.Context(), blob, 0)
		if err == nil {
			_ = in.Close()
		}
		return err
	})
}

// A download that takes longer than a body may take to come goes on.
func TestSlowDownload(t *testing.T) {
	x := newChain(t, func(o *software.Options) { o.BytesPerSecond = 256 << 10 })
	image := noise(1, 640<<10)
	target := x.release("1.0.0", image)
	begin := time.Now()
	if err := x.site("acme", "paris").File(t.Context(), target.Digest, target.Size, filepath.Join(t.TempDir(), "f")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("%v for 640 KiB at 256 KiB/s", took)
	}
}

// Downloads at their limit, and pushes meanwhile.
func TestPushesDuringDownloads(t *testing.T) {
	x := newChain(t, func(o *software.Options) { o.BytesPerSecond = 1 << 20 })
	target := x.release("1.0.0", noise(1, 64<<20))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range 50 {
		f := x.site("acme", fmt.Sprintf("site-%d", i))
		wg.Go(func() {
			in, _, err := f.Open(ctx, delivery.BlobPath+target.Digest, 0)
			if err == nil {
				_, _ = io.Copy(io.Discard, in)
				_ = in.Close()
			}
		})
	}
	testkit.EventuallyTrue(t, "50 downloads", func() bool { return strings.Contains(fmt.Sprintf("%+v", x.serving.Status()), "Downloads:50") })
	push := x.site("acme", "site-0")
	resp, err := push.Client.Post("https://"+x.gw.Addr().String()+"/api/v1/push", "text/plain", strings.NewReader("no samples"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a push of another form, while downloads wait for their turn: %d", resp.StatusCode)
	}
}
