package edge

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/factoryreset"
	resetwire "muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/testkit/kubeapi"
	"muster.dev/muster/internal/wire"
)

// muster-edge as it runs: asked by a regional and ordered by control it sends what it has,
// starts anew in its process, and comes back with the key that it vouched for, and no other.
func TestFactoryResetOfTheProcess(t *testing.T) {
	next := resetProcess(t, "")
	if next == "" {
		t.Error("it has no key")
	}
}

// The same where the identity is in a Secret: another pod is that site afterwards.
func TestFactoryResetOfAPod(t *testing.T) {
	c := newIdentitySecret(t)
	next := resetProcess(t, fmt.Sprintf("kubernetes: {enabled: true, discovery: false, kubeconfig: %q, namespace: %s, stateSecret: %s}\n", c.kubeconfig, c.namespace, c.name))
	if got := hashOf(t, c.get().Data[agent.KeyFile]); got != next {
		t.Errorf("the Secret has the key %s, want %s", got, next)
	}
	for _, name := range factoryreset.Files() {
		if _, there := c.get().Data[name]; there {
			t.Errorf("the Secret still has %s", name)
		}
	}
	another := c.pod()
	if err := another.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := keyIn(t, another.dir); got != next {
		t.Errorf("another pod has the key %s, want %s", got, next)
	}
}

// A pod may go at any moment of a reset: another one goes on with it, and none goes back.
func TestFactoryResetGoesOnInAnotherPod(t *testing.T) {
	c := newIdentitySecret(t)
	former, _, err := agent.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	nextKey, next, err := agent.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	first := c.pod()
	if err := agent.Join(first.dir, agent.JoinConfig{Servers: []string{"gw:1"}, Token: "t", CAHash: "sha256:" + strings.Repeat("6d", 32)}); err != nil {
		t.Fatal(err)
	}
	write := func(p *secretState, path string, b []byte) {
		t.Helper()
		if err := os.MkdirAll(p.resetDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first, filepath.Join(first.dir, agent.KeyFile), former)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(first.save(t.Context()))
	write(first, filepath.Join(first.resetDir, factoryreset.NextKeyFile), nextKey)
	write(first, filepath.Join(first.resetDir, "reset.json"), []byte(`{"request":"one","site":{"tenant":"acme","name":"paris"},"wiping":true}`))
	do(first.save(t.Context()))

	finish := func(p *secretState, keep func(context.Context) error) (bool, error) {
		return factoryreset.Finish(t.Context(), factoryreset.Wipe{Dir: p.resetDir, AgentDir: p.dir, Keep: keep, Logger: slog.New(slog.DiscardHandler)})
	}
	second := c.pod()
	do(second.restore(t.Context()))
	if _, err := finish(second, func(context.Context) error { return errors.New("the power is cut") }); err == nil {
		t.Fatal("it is done, and nobody keeps it")
	}
	if keyIn(t, second.dir) != next || hashOf(t, c.get().Data[agent.KeyFile]) == next {
		t.Fatal("want the next key at the pod alone")
	}
	third := c.pod() // and the Secret says how far it was
	do(third.restore(t.Context()))
	do(second.restore(t.Context())) // the one before restarts all the same
	if keyIn(t, second.dir) == next {
		t.Error("the pod has a key that nobody keeps")
	}
	for _, p := range []*secretState{second, third} {
		if done, err := finish(p, p.save); err != nil || !done {
			t.Fatalf("%v %v", done, err)
		}
		if keyIn(t, p.dir) != next || hashOf(t, c.get().Data[agent.KeyFile]) != next || len(c.get().Data["reset.json"]) > 0 {
			t.Error("the reset is not over")
		}
	}
	first.saved = [sha256.Size]byte{} // as after another change of its files
	if err := first.save(t.Context()); err == nil || hashOf(t, c.get().Data[agent.KeyFile]) != next {
		t.Errorf("a pod with the former key wrote it back: %v", err)
	}
	last := c.pod()
	do(last.restore(t.Context()))
	if done, err := finish(last, last.save); done || err != nil || keyIn(t, last.dir) != next {
		t.Errorf("%v %v", done, err)
	}
}

// identitySecret is a Secret on a real API server, as the manifest makes it.
type identitySecret struct {
	t                           *testing.T
	client                      kubernetes.Interface
	namespace, name, kubeconfig string
}

func newIdentitySecret(t *testing.T) *identitySecret {
	t.Helper()
	config := kubeapi.Start(t)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &identitySecret{t: t, client: client, namespace: "reset-" + strings.ToLower(rand.Text()[:8]), name: "muster-edge-identity", kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken, ClientCertificate: config.CertFile, ClientKey: config.KeyFile,
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(c.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: c.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *identitySecret) get() *corev1.Secret {
	c.t.Helper()
	s, err := c.client.CoreV1().Secrets(c.namespace).Get(c.t.Context(), c.name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// pod is one that starts on an empty disk.
func (c *identitySecret) pod() *secretState {
	dir := c.t.TempDir()
	return &secretState{secrets: c.client.CoreV1().Secrets(c.namespace), name: c.namespace + "/" + c.name, dir: agentDir(dir), resetDir: resetDir(dir), log: slog.New(slog.DiscardHandler)}
}

func hashOf(t *testing.T, pem []byte) string {
	t.Helper()
	key, err := agent.ParseKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	h, err := identity.KeyHash(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// keyIn is the hash of the key that an agent's directory has; "": none.
func keyIn(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, agent.KeyFile))
	if err != nil {
		return ""
	}
	return hashOf(t, b)
}

// resetProcess takes a muster-edge with that in its config through a reset, and returns the
// hash of the key that it has then.
func resetProcess(t *testing.T, more string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/push", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	centre := fakeregional.Start(t, fakeregional.Options{HTTP: mux})
	paris := fleet.SiteID{Tenant: "acme", Name: "paris"}
	dir := t.TempDir()
	file := filepath.Join(dir, "edge.yaml")
	text := fmt.Sprintf("stateDir: %s\nopsListen: 127.0.0.1:0\nhostMetrics: false\ngateways: [%q]\ncaHash: %q\ntoken: muster1.acme.tok.secret\nsite: paris\nfactoryReset: {enabled: true}\n%s",
		filepath.Join(dir, "state"), strings.TrimPrefix(centre.URL(), "https://"), centre.CAHash(), more)
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

	hash := func() string { return keyIn(t, agentDir(config.StateDir)) }
	ask := func(r *resetwire.Request) {
		centre.SetDesired(paris, fakeregional.Blob{Kind: resetwire.Kind, Name: resetwire.Name, Data: r.Encode()})
	}
	testkit.EventuallyTrue(t, "it is there", func() bool { return centre.Seen(paris).Report != nil })
	former := hash()
	r := &resetwire.Request{ID: "one", Site: paris, Key: former}
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
	o := &resetwire.Order{ID: "one", Site: paris, Key: former, NextKey: a.NextKey, Nonce: a.Nonce, ValidFor: time.Hour, Drain: true}
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
	return a.NextKey
}
