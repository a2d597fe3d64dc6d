package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

// muster-edge as it runs: asked by a regional and ordered by control it sends what it has,
// starts anew in its process, and comes back with the key that it vouched for, and no other.
func TestFactoryResetOfTheProcess(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/push", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	centre := fakeregional.Start(t, fakeregional.Options{HTTP: mux})
	paris := fleet.SiteID{Tenant: "acme", Name: "paris"}
	dir := t.TempDir()
	file := filepath.Join(dir, "edge.yaml")
	text := fmt.Sprintf("stateDir: %s\nopsListen: 127.0.0.1:0\nhostMetrics: false\ngateways: [%q]\ncaHash: %q\ntoken: muster1.acme.tok.secret\nsite: paris\nfactoryReset: {enabled: true}\n",
		filepath.Join(dir, "state"), strings.TrimPrefix(centre.URL(), "https://"), centre.CAHash())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := LoadConfig(file, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config) }()

	hash := func() string {
		b, err := os.ReadFile(filepath.Join(agentDir(config.StateDir), agent.KeyFile))
		if err != nil {
			return ""
		}
		key, err := agent.ParseKey(b)
		if err != nil {
			t.Fatal(err)
		}
		h, err := identity.KeyHash(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	ask := func(r *factoryreset.Request) {
		centre.SetDesired(paris, fakeregional.Blob{Kind: factoryreset.Kind, Name: factoryreset.Name, Data: r.Encode()})
	}
	testkit.EventuallyTrue(t, "it is there", func() bool { return centre.Seen(paris).Report != nil })
	former := hash()
	r := &factoryreset.Request{ID: "one", Site: paris, Key: former}
	ask(r)
	var a *wire.FactoryResetAnswer
	testkit.EventuallyTrue(t, "it confirms", func() bool { a = centre.Seen(paris).Report.GetFactoryReset(); return len(a.GetNonce()) > 0 })

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := centre.CA().IssueControl(key.Public(), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &factoryreset.Order{ID: "one", Site: paris, Key: former, NextKey: a.NextKey, Nonce: a.Nonce, ValidFor: time.Hour, Drain: true}
	if r.Order, err = o.Sign(&tls.Certificate{Certificate: [][]byte{issued.Leaf.Raw}, PrivateKey: key}); err != nil {
		t.Fatal(err)
	}
	ask(r)
	testkit.EventuallyTrue(t, "it is back with its next key", func() bool {
		got := centre.Seen(paris)
		return hash() == a.NextKey && got.Report != nil && got.Report.GetFactoryReset() == nil
	})
	// The same order is still wanted, and is for a key that it had.
	testkit.EventuallyTrue(t, "it refuses what is for its former key", func() bool {
		c := centre.Seen(paris).Condition("FactoryResetApplied")
		return c.GetStatus() == "False" && strings.Contains(c.GetMessage(), "a key that this site had before")
	})
	if now := hash(); now != a.NextKey {
		t.Errorf("it has %s, want %s", now, a.NextKey)
	}
	cancel()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}
