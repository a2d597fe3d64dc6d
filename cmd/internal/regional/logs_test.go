package regional

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/regional/logs/intake"
	"muster.dev/muster/regional/logs/store"
	"muster.dev/muster/regional/logs/store/elastic"
)

const childEnv = "MUSTER_TEST_LOG_INTAKE" // DIR ADDRESS ELASTICSEARCH: be an intake, in a process that can be killed

// queueCap is small, so that a flood meets it.
const queueCap = 2 << 20

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(childEnv)); len(args) == 3 {
		if err := runIntake(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runIntake is the regional's log path: intake, queue, Elasticsearch. Who sends is
// not at issue here, so it takes everyone for one site.
func runIntake(dir, addr, url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	st, err := elastic.Open(elastic.Options{URLs: []string{url}, Prefix: "flood", Logger: log})
	if err != nil {
		return err
	}
	in, err := intake.New(intake.Options{Name: "one", Dir: dir, Sink: st, QueueBytes: queueCap, MaxDelay: time.Second, MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second, Logger: log,
		Limits: func(fleet.SiteID) intake.SiteLimits { return intake.SiteLimits{BytesPerSecond: 1 << 30} }})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	go http.Serve(ln, in.Handler(func(*http.Request) (fleet.SiteID, string, error) { //nolint:gosec // loopback
		return fleet.SiteID{Tenant: "acme", Name: "paris"}, "eu", nil
	}))
	return in.Run(ctx)
}

func startIntake(t *testing.T, dir, addr, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{dir, addr, url}, " "))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// flood sends numbered lines, each chunk until it is acknowledged, and remembers which were.
type flood struct {
	url          string
	acked        atomic.Int64
	refused      atomic.Int64 // answers that asked to come again
	again        atomic.Int64 // attempts after the first
	mu           sync.Mutex
	acknowledged map[string]bool
}

func (s *flood) run(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		var body bytes.Buffer
		names := make([]string, 50)
		at := time.Now().Add(-time.Minute)
		for i := range names {
			names[i] = fmt.Sprintf("w%d-%d-%d", worker, n, i)
			// What can't be pressed fills the queue with a few thousand lines.
			fmt.Fprintf(&body, "{\"date\":%d.%06d,\"log\":\"line %s", at.Unix(), i, names[i])
			for range 8 {
				fmt.Fprintf(&body, " %s", rand.Text())
			}
			body.WriteString("\"}\n")
		}
		for first := true; ctx.Err() == nil; first = false {
			if !first {
				s.again.Add(1)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
			resp, err := http.Post(s.url, "application/x-ndjson", bytes.NewReader(body.Bytes()))
			if err != nil {
				continue // the regional is dead
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				s.mu.Lock()
				for _, name := range names {
					s.acknowledged[name] = true
				}
				s.mu.Unlock()
				s.acked.Add(int64(len(names)))
				break
			}
			s.refused.Add(1)
		}
	}
}

// Elasticsearch dies under load and stays away until the queue is full, the regional is
// killed meanwhile, and both come back: every acknowledged line is there, once.
func TestNoAcknowledgedLineIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Elasticsearch twice")
	}
	node := elasticsearch.Start(t, elasticsearch.Options{Private: true})
	dir, addr := t.TempDir(), testkit.FreeAddr(t)
	child := startIntake(t, dir, addr, node.URL)
	s := &flood{url: "http://" + addr + "/", acknowledged: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	for w := range 4 {
		senders.Go(func() { s.run(ctx, w) })
	}
	awaitLong(t, "lines flow into Elasticsearch", func() bool { return s.acked.Load() > 5000 })

	node.Kill(t)
	awaitLong(t, "the queue is full and the intake stops acknowledging", func() bool { return s.refused.Load() > 8 })
	atCap := s.acked.Load()
	_ = child.Process.Kill()
	_ = child.Wait()
	child = startIntake(t, dir, addr, node.URL)
	before := s.refused.Load()
	awaitLong(t, "the regional is back, and its queue still full", func() bool { return s.refused.Load() > before })

	node.Restart(t)
	awaitLong(t, "lines flow again", func() bool { return s.acked.Load() > atCap+5000 })
	// Once more, while Elasticsearch is well.
	_ = child.Process.Kill()
	_ = child.Wait()
	startIntake(t, dir, addr, node.URL)
	after := s.acked.Load()
	awaitLong(t, "lines flow after the second kill", func() bool { return s.acked.Load() > after+5000 })
	cancel()
	senders.Wait()
	s.allStoredOnce(t, node.URL)
}

// The disk of Elasticsearch fills up to where it makes every index read-only, and is
// emptied again: the lines wait, and none goes to the dead letters.
func TestFloodStageOfElasticsearch(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Elasticsearch")
	}
	node := elasticsearch.Start(t, elasticsearch.Options{Private: true})
	full := func(yes bool) {
		body := fmt.Sprintf(`{"persistent":{"cluster.info.update.interval":"10s","cluster.routing.allocation.disk":{"threshold_enabled":%v,"watermark":{"low":"1%%","high":"1%%","flood_stage":"1%%"}}}}`, yes)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, node.URL+"/_cluster/settings", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", resp.Status, b)
		}
	}
	dir, addr := t.TempDir(), testkit.FreeAddr(t)
	startIntake(t, dir, addr, node.URL)
	s := &flood{url: "http://" + addr + "/", acknowledged: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var senders sync.WaitGroup
	senders.Go(func() { s.run(ctx, 0) })
	awaitLong(t, "lines flow into Elasticsearch", func() bool { return s.acked.Load() > 2000 })
	full(true)
	awaitLong(t, "the queue is full and the intake stops acknowledging", func() bool { return s.refused.Load() > 8 })
	atCap := s.acked.Load()
	full(false)
	awaitLong(t, "lines flow again", func() bool { return s.acked.Load() > atCap+2000 })
	cancel()
	senders.Wait()
	s.allStoredOnce(t, node.URL)
}

func (s *flood) allStoredOnce(t *testing.T, url string) {
	t.Helper()
	st, err := elastic.Open(elastic.Options{URLs: []string{url}, Prefix: "flood"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var found map[string]int
	testkit.EventuallyWithin(t, "all acknowledged lines are stored", busy, func() error {
		found = stored(t, st)
		missing := 0
		for name := range s.acknowledged {
			if found[name] == 0 {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d are not", missing, len(s.acknowledged))
		}
		return nil
	})
	twice := 0
	for _, n := range found {
		twice += n - 1
	}
	t.Logf("%d lines acknowledged, %d refusals, %d attempts after the first; stored %d, of them twice %d", len(s.acknowledged), s.refused.Load(), s.again.Load(), len(found), twice)
	if twice > 0 {
		t.Errorf("%d lines are stored twice", twice)
	}
}

// Elasticsearch has its TLS and its users from a distribution's security part, which
// the node of the tests lacks: here a proxy before it has them.
func TestElasticsearchWithTLSAndUsers(t *testing.T) {
	node := elasticsearch.Start(t, elasticsearch.Options{})
	target, err := url.Parse(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if (user != "muster" || password != "secret") && r.Header.Get("Authorization") != "APIKey a2V5OnNlY3JldA==" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"root_cause":[{"type":"security_exception","reason":"unable to authenticate user"}],"type":"security_exception","reason":"unable to authenticate user"},"status":401}`)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})))
	password, key := file("password", "secret\n"), file("key", "a2V5OnNlY3JldA==\n")
	for name, c := range map[string]struct {
		es   config.Elasticsearch
		want string // in the error
	}{
		"password":          {es: config.Elasticsearch{CAFile: ca, Username: "muster", PasswordFile: password}},
		"API key":           {es: config.Elasticsearch{CAFile: ca, APIKeyFile: key}},
		"wrong password":    {es: config.Elasticsearch{CAFile: ca, Username: "muster", PasswordFile: key}, want: "401 security_exception: unable to authenticate user"},
		"no user":           {es: config.Elasticsearch{CAFile: ca}, want: "401"},
		"unknown authority": {es: config.Elasticsearch{Username: "muster", PasswordFile: password}, want: "certificate signed by unknown authority"},
		"no CA file":        {es: config.Elasticsearch{CAFile: dir + "/none"}, want: "elasticsearch.caFile"},
		"no certificate":    {es: config.Elasticsearch{CAFile: key}, want: "elasticsearch.caFile"},
		"no password file":  {es: config.Elasticsearch{PasswordFile: dir + "/none"}, want: "elasticsearch.passwordFile"},
	} {
		t.Run(name, func(t *testing.T) {
			c.es.URLs, c.es.Prefix, c.es.Shards = []string{proxy.URL}, "tls", 1
			st, err := openLogStore(&role.Env{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()}, dir, config.Regional{Name: "one", Logs: config.Logs{Elasticsearch: c.es}}, nil)
			if err == nil {
				defer st.Close()
				if err = st.Ready(t.Context()); err == nil {
					var res store.Result
					if res, err = st.Write(t.Context(), []store.Record{{Timestamp: time.Now(), Tenant: "acme", Site: "paris", ID: name, Message: "hello"}}); err == nil && res.Stored != 1 {
						t.Errorf("%+v", res)
					}
				}
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// stored counts the lines by name.
func stored(t *testing.T, st store.Store) map[string]int {
	t.Helper()
	out := map[string]int{}
	q := store.Query{Tenant: "acme", Limit: store.MaxLimit}
	for {
		page, err := st.Search(t.Context(), q)
		if errors.Is(err, store.ErrTimeout) && t.Context().Err() == nil {
			continue // a machine that is busy with other things
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Hits {
			out[strings.Fields(h.Message)[1]]++
		}
		if page.Next == "" {
			return out
		}
		q.Cursor = page.Next
	}
}

// busy is how long an Elasticsearch that starts anew, or heals, may take on a machine that
// does much else.
const busy = 5 * time.Minute

// awaitLong is for what that is in the way of.
func awaitLong(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testkit.EventuallyWithin(t, what, busy, func() error {
		if !ok() {
			return errors.New("it is not")
		}
		return nil
	})
}

func TestInventoryAnswers(t *testing.T) {
	inv := newInventory("one")
	paris := fleet.SiteID{Tenant: "acme", Name: "paris"}
	if l := inv.logLimits(paris); l.BytesPerSecond != 0 || l.Deny != nil {
		t.Errorf("limits of a site nobody told of: %+v", l)
	}
	var doc region.Inventory
	if err := json.Unmarshal([]byte(`{"tenant":"acme","logPolicies":[{},{"deny":["unit/*"],"bytesPerSecond":4096,"linesPerSecond":7}],
		"sites":[{"name":"paris","region":"eu","virtualSites":["shared/all","shop/eu"],"logPolicy":1},{"name":"rome"}]}`), &doc); err != nil {
		t.Fatal(err)
	}
	inv.set([]region.Inventory{doc})
	if l := inv.logLimits(paris); l.BytesPerSecond != 4096 || l.LinesPerSecond != 7 || len(l.Deny) != 1 {
		t.Errorf("limits: %+v", l)
	}
	for name, want := range map[string]bool{"all": true, "shared/all": true, "shop/eu": true, "eu": false} {
		if m, ok := inv.virtualMembers("acme", name); ok != want || ok && m[0] != "paris" {
			t.Errorf("members of %s: %v, %v", name, m, ok)
		}
	}
	if _, ok := inv.virtualMembers("other", "all"); ok {
		t.Error("another tenant's virtual site was found")
	}
}
