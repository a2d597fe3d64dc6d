package alerting

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/cluster"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/alerting/state"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// Alertmanagers of two alerting roles gossip; one that has another role's certificate, or
// none, is told nothing and heard by nobody.
func TestGossipIsAmongAlertingRoles(t *testing.T) {
	g := newGossip(t)
	one, atOne, _ := g.start("one", "alerting", true)
	two, atTwo, _ := g.start("two", "alerting", true, one.ClusterAddr())
	testkit.Eventually(t, "two that know each other", func() error {
		for _, m := range []*manager.Manager{one, two} {
			if err := m.Ready(); err != nil {
				return err
			}
		}
		if err := g.known(atOne, 2); err != nil {
			return err
		}
		return g.known(atTwo, 2)
	})
	for name, encrypted := range map[string]bool{"console": true, "nobody": false} {
		stranger, at, _ := g.start(name, name, encrypted, one.ClusterAddr(), two.ClusterAddr())
		testkit.Eventually(t, name+" has settled", stranger.Ready)
		if err := g.known(at, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.known(atOne, 2); err != nil {
		t.Errorf("after strangers tried: %v", err)
	}
}

// Alertmanager reads the fleet's CA when it starts. One start between two steps of a change
// of the CA is enough: until the old CA is retired, certificates come with the new CA as the
// old one signed it.
func TestGossipThroughAChangeOfTheCA(t *testing.T) {
	g := newGossip(t)
	one, atOne, stopOne := g.start("one", "alerting", true)
	meet := func(what string, m *manager.Manager, at *amclient.Client, others ...*amclient.Client) {
		t.Helper()
		testkit.Eventually(t, what, func() error {
			if err := m.Ready(); err != nil {
				return err
			}
			for _, c := range append(others, at) {
				if err := g.known(c, len(others)+1); err != nil {
					return err
				}
			}
			return nil
		})
	}
	step := func(change func() error) {
		t.Helper()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"one", "two"} {
			g.identity(name, "alerting")
		}
	}
	step(g.ca.PrepareRollover)
	step(g.ca.ActivateRollover)
	two, atTwo, _ := g.start("two", "alerting", true, one.ClusterAddr())
	meet("one that started before the change and one that did after it", two, atTwo, atOne)
	stopOne()
	again, atAgain, _ := g.start("one", "alerting", true, two.ClusterAddr())
	step(g.ca.RetireOld)
	meet("both that started after it", again, atAgain, atTwo)
	three, atThree, _ := g.start("three", "alerting", true, two.ClusterAddr(), again.ClusterAddr())
	meet("one that knows the new CA alone", three, atThree, atAgain, atTwo)
}

// Whichever of two alerting roles is asked how often rules notified, it knows what both of them sent.
func TestRolesTellEachOtherWhatTheySent(t *testing.T) {
	g := newGossip(t)
	ask := map[string]func() (wire.LoudnessList, error){}
	g.shared = map[string]map[string]cluster.State{}
	for name, sent := range map[string]int{"one": 2, "two": 5} {
		tally, err := state.OpenTally(filepath.Join(t.TempDir(), "notifications.json"))
		if err != nil {
			t.Fatal(err)
		}
		for range sent {
			tally.Add(time.Now(), "acme", "mail", []string{"Disk"}, false)
		}
		g.shared[name] = shared(tally)
		s, err := state.New(state.Options{Tally: tally, Source: state.SourceFunc(func(context.Context) ([]wire.Alert, error) { return nil, nil }), Silences: &amclient.Client{}, File: filepath.Join(t.TempDir(), "history.db"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		mux := http.NewServeMux()
		s.Register(mux)
		ask[name] = func() (out wire.LoudnessList, err error) {
			r := httptest.NewRequest(http.MethodGet, "/api/v1/alerts/notifications", nil)
			r.Header.Set(wire.TenantsHeader, "acme")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			return out, json.Unmarshal(w.Body.Bytes(), &out)
		}
	}
	one, _, _ := g.start("one", "alerting", true)
	g.start("two", "alerting", true, one.ClusterAddr())
	testkit.Eventually(t, "both know what both sent", func() error {
		for name, f := range ask {
			if l, err := f(); err != nil || l.Total != 7 || len(l.Rules) != 1 {
				return fmt.Errorf("%s: %+v, %v", name, l, err)
			}
		}
		return nil
	})
}

// gossip starts Alertmanagers of one fleet.
type gossip struct {
	t    *testing.T
	root string
	ca   *pki.CA
	// shared is what they tell each other besides, by name.
	shared map[string]map[string]cluster.State
}

func newGossip(t *testing.T) *gossip {
	g := &gossip{t: t, root: t.TempDir()}
	var err error
	if g.ca, err = pki.Open(pki.Options{Dir: filepath.Join(g.root, "pki")}); err != nil {
		t.Fatal(err)
	}
	return g
}

// identity writes the files of a role as control does, where an alerting role's are.
func (g *gossip) identity(name, role string) config.Config {
	g.t.Helper()
	c := config.Default()
	c.DataDir = filepath.Join(g.root, name)
	c.Alerting.Alertmanager.Cluster.Listen = "127.0.0.1:0"
	if _, err := g.ca.EnsureRole(c.Identity("alerting"), role, []string{c.RoleHost(role)}); err != nil {
		g.t.Fatal(err)
	}
	return c
}

// start runs an Alertmanager as a role that has the files of this identity.
func (g *gossip) start(name, role string, encrypted bool, peers ...string) (*manager.Manager, *amclient.Client, func()) {
	t := g.t
	t.Helper()
	c := g.identity(name, role)
	c.InsecureLoopback = !encrypted
	file, err := clusterTLS(c, c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
		Cluster: manager.Cluster{Listen: "127.0.0.1:0", Peers: peers, TLSConfig: file, Shared: g.shared[name], PeerTimeout: 2 * time.Second, GossipInterval: 20 * time.Millisecond, PushPullInterval: 500 * time.Millisecond, SettleTimeout: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetConfig([]byte(noRoutes)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Log(err) // of leaving: whoever stops last tells nobody
		}
	})
	t.Cleanup(stop)
	client, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	return m, client, stop
}

// known tells whether an Alertmanager knows so many, itself included.
func (g *gossip) known(c *amclient.Client, want int) error {
	s, err := c.Status(g.t.Context())
	if err == nil && len(s.Cluster.Peers) != want {
		err = fmt.Errorf("%d peers, want %d", len(s.Cluster.Peers), want)
	}
	return err
}
