package alerting

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/alerting/manager"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/testkit"
)

// Alertmanagers of two alerting roles gossip; one that has another role's certificate, or
// none, is told nothing and heard by nobody.
func TestGossipIsAmongAlertingRoles(t *testing.T) {
	root := t.TempDir()
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(root, "pki")})
	if err != nil {
		t.Fatal(err)
	}
	// start runs an Alertmanager as a role that has the files of this identity where an
	// alerting role's are.
	start := func(name, role string, encrypted bool, peers ...string) (*manager.Manager, *amclient.Client) {
		t.Helper()
		c := config.Default()
		c.DataDir, c.InsecureLoopback = filepath.Join(root, name), !encrypted
		c.Alerting.Alertmanager.Cluster.Listen = "127.0.0.1:0"
		if _, err := ca.EnsureRole(c.Identity("alerting"), role, []string{c.RoleHost(role)}); err != nil {
			t.Fatal(err)
		}
		file, err := clusterTLS(c, c.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
			Cluster: manager.Cluster{Listen: "127.0.0.1:0", Peers: peers, TLSConfig: file, PeerTimeout: 2 * time.Second, GossipInterval: 20 * time.Millisecond, PushPullInterval: 500 * time.Millisecond, SettleTimeout: 5 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetConfig([]byte(noRoutes)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Log(err) // of leaving: whoever stops last tells nobody
			}
		})
		client, err := amclient.New(amclient.Options{URLs: []string{m.URL()}})
		if err != nil {
			t.Fatal(err)
		}
		return m, client
	}
	known := func(c *amclient.Client, want int) error {
		s, err := c.Status(t.Context())
		if err == nil && len(s.Cluster.Peers) != want {
			err = fmt.Errorf("%d peers, want %d", len(s.Cluster.Peers), want)
		}
		return err
	}
	one, atOne := start("one", "alerting", true)
	two, atTwo := start("two", "alerting", true, one.ClusterAddr())
	testkit.Eventually(t, "two that know each other", func() error {
		for _, m := range []*manager.Manager{one, two} {
			if err := m.Ready(); err != nil {
				return err
			}
		}
		if err := known(atOne, 2); err != nil {
			return err
		}
		return known(atTwo, 2)
	})
	for name, encrypted := range map[string]bool{"console": true, "nobody": false} {
		stranger, at := start(name, name, encrypted, one.ClusterAddr(), two.ClusterAddr())
		testkit.Eventually(t, name+" has settled", stranger.Ready)
		if err := known(at, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := known(atOne, 2); err != nil {
		t.Errorf("after strangers tried: %v", err)
	}
}
