package control_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/control"
	"muster.dev/muster/cmd/internal/regional"
	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/registration"
	"muster.dev/muster/internal/conf"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/kubetls"
	"muster.dev/muster/internal/testkit"
)

// startLimit is how long a role may take until it answers.
const startLimit = 3 * time.Minute

// link passes connections on, and can drop those that there are.
type link struct {
	ln    net.Listener
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ln: ln, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { ln.Close(); l.drop() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			l.mu.Lock()
			l.conns[near], l.conns[far] = true, true
			l.mu.Unlock()
			for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
				go func() {
					_, _ = io.Copy(to, from)
					l.mu.Lock()
					defer l.mu.Unlock()
					delete(l.conns, from)
					from.Close()
					to.Close()
				}()
			}
		}
	}()
	return l
}

func (l *link) addr() string { return l.ln.Addr().String() }

func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// mapper knows the kinds of the test: discovery would connect when a client is made.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(v1alpha1.GroupVersion.WithKind("Tenant"), meta.RESTScopeRoot)
	for _, kind := range []string{"Site", "RegistrationToken"} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

// signedBy tells who signed the certificate that a server presents.
func signedBy(addr string) (string, error) {
	// The chain is looked at, not trusted.
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Issuer.CommonName, nil
}

// The fleet's CA changes while control, a regional and a site run: in every phase all of
// them make new connections, and nothing is restarted. A site that was away meanwhile
// comes back before the old CA is retired.
func TestCAChangesOnARunningFleet(t *testing.T) {
	c := config.Default()
	c.DataDir = t.TempDir()
	c.Log.Level = "error"
	c.Control.Tenants = []string{"acme"}
	c.Control.SiteCertLife = conf.Duration(20 * time.Second) // less than a file may say
	c.Control.Listen, c.Control.FleetListen, c.Control.OpsListen = testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t)
	// Nobody listens there: a fleet beside this one must not get its samples.
	c.Aggregator.Cortex.Listen, c.Alerting.Alertmanager.Listen = testkit.FreeAddr(t), testkit.FreeAddr(t)
	r := &c.Regionals[0]
	r.Listen, r.QueryListen, r.Logs.ForwardListen = testkit.FreeAddr(t), testkit.FreeAddr(t), testkit.FreeAddr(t)
	toControl, toGateway := newLink(t, c.Control.FleetListen), newLink(t, r.Listen)
	c.Control.FleetAddress = toControl.addr()

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	run := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("%s ended: %v", what, err)
			}
		})
	}
	run("control", func(ctx context.Context) error { return control.Run(ctx, c) })
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var apis []client.Client // one a phase, so that each connects in its own
	connect := func() error {
		cfg, _, err := kubetls.Load(filepath.Join(c.DataDir, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		api, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper()})
		if err == nil {
			apis = append(apis, api)
		}
		return err
	}
	testkit.EventuallyWithin(t, "control", startLimit, func() error {
		apis = nil
		if err := connect(); err != nil {
			return err
		}
		var tenant v1alpha1.Tenant
		if err := apis[0].Get(ctx, client.ObjectKey{Name: "acme"}, &tenant); err != nil {
			return err
		}
		if len(tenant.Status.Namespaces) == 0 {
			return fmt.Errorf("%+v", tenant.Status)
		}
		return nil
	})
	api := apis[0]
	apis = nil
	for range control.RolloverSteps {
		if err := connect(); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := registration.NewToken("acme", "tok")
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Create(ctx, &v1alpha1.RegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: "acme-system", Name: "tok"}, Spec: v1alpha1.RegistrationTokenSpec{SecretHash: tok.SecretHash(), AutoApprove: true}}); err != nil {
		t.Fatal(err)
	}
	run("regional", func(ctx context.Context) error { return regional.Run(ctx, c, *r) })
	hash, err := os.ReadFile(c.Path("join-ca-hash"))
	if err != nil {
		t.Fatal(err)
	}

	start := func(ctx context.Context, name string) *agent.Agent {
		dir := filepath.Join(c.DataDir, "site-"+name)
		if err := agent.Join(dir, agent.JoinConfig{Servers: []string{toGateway.addr()}, Token: tok.String(), CAHash: strings.TrimSpace(string(hash)), Site: name}); err != nil {
			t.Fatal(err)
		}
		a, err := agent.New(agent.Options{Dir: dir, Version: "v1", Logger: slog.New(slog.DiscardHandler), MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second, ConditionEvery: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { _ = a.Run(ctx) })
		return a
	}
	// talks: what the agent says now is in its Site, by way of the gateway, the regional's
	// stream to control and the API server.
	talks := func(api client.Client, a *agent.Agent, name, word string) {
		t.Helper()
		a.SetCondition("Test", "True", "Said", word)
		testkit.EventuallyWithin(t, name+" is heard "+word, startLimit, func() error {
			var s v1alpha1.Site
			if err := api.Get(ctx, client.ObjectKey{Namespace: "acme-system", Name: name}, &s); err != nil {
				return err
			}
			for _, cond := range s.Status.Conditions {
				if cond.Type == "Test" && cond.Message == word {
					return nil
				}
			}
			st := a.Status()
			return fmt.Errorf("site %s: %v; agent: %s %s (last error %s)", s.Status.Phase, s.Status.Conditions, st.Phase, st.Message, st.LastError)
		})
	}
	paris := start(ctx, "paris")
	talks(api, paris, "paris", "first")
	away, stop := context.WithCancel(ctx)
	talks(api, start(away, "rome"), "rome", "first")
	stop()

	trusts := func(n int) {
		t.Helper()
		testkit.EventuallyWithin(t, fmt.Sprintf("the site trusts %d CAs", n), startLimit, func() error {
			b, err := os.ReadFile(filepath.Join(c.DataDir, "site-paris", "bundle.pem"))
			if err != nil {
				return err
			}
			if cas, err := identity.ParseBundle(b); err != nil || len(cas) != n {
				return fmt.Errorf("%d, %v", len(cas), err)
			}
			return nil
		})
	}
	old, err := signedBy(r.Listen)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range control.RolloverSteps {
		if err := control.Rollover(c, step, true, io.Discard); err != nil {
			t.Fatal(err)
		}
		switch step {
		case "prepare":
			trusts(2)
		case "activate":
			for what, addr := range map[string]string{"the gateway": r.Listen, "the fleet API": c.Control.FleetListen, "the API server": c.Control.Listen} {
				testkit.EventuallyWithin(t, what+" shows the new CA's certificate", startLimit, func() error {
					if by, err := signedBy(addr); err != nil || by == old {
						return fmt.Errorf("signed by %s, %v", by, err)
					}
					return nil
				})
			}
			testkit.EventuallyWithin(t, "the site's certificate is the new CA's", startLimit, func() error {
				pair, err := paris.TLSClientConfig("x").GetClientCertificate(nil)
				if err != nil {
					return err
				}
				leaf, err := x509.ParseCertificate(pair.Certificate[0])
				if err == nil && leaf.Issuer.CommonName == old {
					err = fmt.Errorf("signed by %s until %s", leaf.Issuer.CommonName, leaf.NotAfter)
				}
				return err
			})
			talks(apis[i], start(ctx, "rome"), "rome", "back after "+step)
		case "retire":
			trusts(1)
		}
		toControl.drop()
		toGateway.drop()
		talks(apis[i], paris, "paris", "after "+step)
	}
	// Who is new trusts the new CA alone.
	if hash, err = os.ReadFile(c.Path("join-ca-hash")); err != nil {
		t.Fatal(err)
	}
	talks(apis[2], start(ctx, "oslo"), "oslo", "at last")
}
