// Package apiserver runs the stock Kubernetes API server in this process, without
// kubelets, on an embedded or an external etcd, and installs Muster's CRDs in it.
//
// It is the one home of k8s.io/kubernetes and etcd's server, which take minutes to
// build. The API server keeps process-wide state, so one process runs one. It is
// started by internal/app/control and by tests through internal/testkit/kubeapi.
package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"muster.dev/muster/internal/identity"
)

// Etcd names an external etcd.
type Etcd struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
}

// OIDC lets users log in with an identity provider; an empty IssuerURL turns it off.
type OIDC struct {
	IssuerURL, ClientID, UsernameClaim, GroupsClaim string
}

// Options of a Server.
type Options struct {
	Dir      string // state of the API server: etcd, keys, audit log
	Listen   string // HOST:PORT
	CertFile string // serving certificate and key, PEM
	KeyFile  string
	CAPEM    []byte // what clients shall trust
	// KubeconfigDir gets admin.kubeconfig and admin.token, and a kubeconfig for
	// each of Users.
	KubeconfigDir string
	// Users are further identities with a token of their own: name → groups. Each
	// gets Dir/<name>.kubeconfig.
	Users  map[string][]string
	Etcd   Etcd
	OIDC   OIDC
	Logger *slog.Logger
}

// Server is a running API server.
type Server struct {
	o      Options
	addr   string
	admin  string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	etcd   func()
}

// Gatherer is where the API server and etcd register their metrics.
func Gatherer() prometheus.Gatherer { return legacyregistry.DefaultGatherer }

// Start starts the API server and returns when it is ready and the CRDs are
// served.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	klog.SetSlogLogger(slog.New(quiet{o.Logger.Handler()}))
	s := &Server{o: o, done: make(chan struct{}), etcd: func() {}}
	endpoints := o.Etcd.Endpoints
	if len(endpoints) == 0 {
		endpoint, stop, err := startEtcd(ctx, filepath.Join(o.Dir, "etcd"))
		if err != nil {
			return nil, err
		}
		endpoints, s.etcd = []string{endpoint}, stop
	}
	defer func() {
		if err != nil {
			_ = s.Stop(context.Background())
		}
	}()
	args, err := s.args(endpoints)
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	prepared, err := prepare(runCtx, args)
	if err != nil {
		close(s.done)
		return nil, fmt.Errorf("API server: %w", err)
	}
	go func() {
		defer close(s.done)
		s.err = prepared(runCtx)
	}()
	if err := s.writeKubeconfigs(); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		return nil, err
	}
	return s, installCRDs(ctx, s.Config())
}

func prepare(ctx context.Context, args []string) (func(context.Context) error, error) {
	o := options.NewServerRunOptions()
	addAdmission(o)
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	complete, err := config.Complete()
	if err != nil {
		return nil, err
	}
	server, err := app.CreateServerChain(complete)
	if err != nil {
		return nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, err
	}
	return prepared.Run, nil
}

// args are the flags of kube-apiserver, as its documentation has them.
func (s *Server) args(endpoints []string) ([]string, error) {
	o := s.o
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %q: want HOST:PORT", o.Listen)
	}
	if port == "0" {
		ln, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, err
		}
		_, port, _ = net.SplitHostPort(ln.Addr().String())
		_ = ln.Close()
	}
	s.addr = net.JoinHostPort(host, port)
	bind := host
	if bind == "" || net.ParseIP(bind) == nil {
		addrs, err := net.LookupHost(host)
		if err != nil || len(addrs) == 0 {
			bind = "0.0.0.0"
		} else {
			bind = addrs[0]
		}
	}
	saKey := filepath.Join(o.Dir, "service-account.key")
	if err := ensureKey(saKey); err != nil {
		return nil, err
	}
	tokens := filepath.Join(o.Dir, "tokens.csv")
	if s.admin, err = ensureTokens(tokens, o.Users); err != nil {
		return nil, err
	}
	policy := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=" + strings.Join(endpoints, ","),
		"--bind-address=" + bind, "--secure-port=" + port, "--advertise-address=127.0.0.1",
		"--tls-cert-file=" + o.CertFile, "--tls-private-key-file=" + o.KeyFile,
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://muster.local", "--service-account-key-file=" + saKey, "--service-account-signing-key-file=" + saKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		// There are no nodes: no endpoints of this server to reconcile, and nothing
		// that these plugins could protect.
		"--endpoint-reconciler-type=none",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultStorageClass,StorageObjectInUseProtection",
		"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(o.Dir, "audit.log"),
		"--audit-log-maxsize=50", "--audit-log-maxbackup=5", "--audit-log-maxage=30",
		"--profiling=false",
		"--shutdown-delay-duration=0s", "--request-timeout=60s",
	}
	if e := o.Etcd; len(e.Endpoints) > 0 {
		for flag, v := range map[string]string{"etcd-cafile": e.CAFile, "etcd-certfile": e.CertFile, "etcd-keyfile": e.KeyFile} {
			if v != "" {
				args = append(args, "--"+flag+"="+v)
			}
		}
	}
	if oidc := o.OIDC; oidc.IssuerURL != "" {
		args = append(args, "--oidc-issuer-url="+oidc.IssuerURL, "--oidc-client-id="+oidc.ClientID, "--oidc-username-claim="+oidc.UsernameClaim, "--oidc-groups-claim="+oidc.GroupsClaim)
	}
	return args, nil
}

// auditPolicy records who changed what; reads and the traffic of the server with
// itself would only bury that. Bodies are left out: they may hold secrets.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: ["system:apiserver", "muster:control", "muster:health"]
  - level: None
    verbs: [get, list, watch]
  - level: None
    resources:
      - {group: authentication.k8s.io}
      - {group: authorization.k8s.io}
      - {group: coordination.k8s.io}
      - {group: "", resources: [events]}
  - level: Metadata
`

func ensureKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return identity.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// ensureTokens keeps a static token for the administrator and for each user, so
// that kubeconfigs stay good over restarts. It returns the administrator's.
func ensureTokens(path string, users map[string][]string) (admin string, err error) {
	known := map[string]string{}
	if b, err := os.ReadFile(path); err == nil {
		for line := range strings.Lines(string(b)) {
			if f := strings.SplitN(strings.TrimSpace(line), ",", 4); len(f) >= 2 {
				known[f[1]] = f[0]
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	token := func(name string) string {
		if t, ok := known[name]; ok && t != "" {
			return t
		}
		b := make([]byte, 32)
		_, _ = rand.Read(b)
		known[name] = base64.RawURLEncoding.EncodeToString(b)
		return known[name]
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s,muster:admin,muster:admin,\"system:masters\"\n", token("muster:admin"))
	for name, groups := range users {
		fmt.Fprintf(&out, "%s,%s,%s,\"%s\"\n", token(name), name, name, strings.Join(groups, ","))
	}
	return known["muster:admin"], identity.WriteFile(path, []byte(out.String()), 0o600)
}

// Addr is HOST:PORT of the API server.
func (s *Server) Addr() string { return s.addr }

// Config is a client configuration of the administrator.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: "https://" + s.reach(), BearerToken: s.admin, TLSClientConfig: rest.TLSClientConfig{CAData: s.o.CAPEM}, QPS: 200, Burst: 400}
}

// reach is the address that clients on this machine use.
func (s *Server) reach() string {
	host, port, _ := net.SplitHostPort(s.addr)
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func (s *Server) writeKubeconfigs() error {
	if s.o.KubeconfigDir == "" {
		return nil
	}
	write := func(path, user, token string) error {
		c := clientcmdapi.NewConfig()
		c.Clusters["muster"] = &clientcmdapi.Cluster{Server: "https://" + s.reach(), CertificateAuthorityData: s.o.CAPEM}
		c.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
		c.Contexts["muster"] = &clientcmdapi.Context{Cluster: "muster", AuthInfo: user}
		c.CurrentContext = "muster"
		b, err := clientcmd.Write(*c)
		if err != nil {
			return err
		}
		return identity.WriteFile(path, b, 0o600)
	}
	if err := write(filepath.Join(s.o.KubeconfigDir, "admin.kubeconfig"), "admin", s.admin); err != nil {
		return err
	}
	if err := identity.WriteFile(filepath.Join(s.o.KubeconfigDir, "admin.token"), []byte(s.admin+"\n"), 0o600); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(s.o.Dir, "tokens.csv"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(line, ",", 4)
		if name, ok := strings.CutPrefix(f[1], "muster:"); ok && name != "admin" {
			if err := write(filepath.Join(s.o.Dir, name+".kubeconfig"), name, f[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	client, err := rest.UnversionedRESTClientFor(unversioned(s.Config()))
	if err != nil {
		return err
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := client.Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("API server on %s: %w", s.addr, s.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("API server on %s was not ready within 2 minutes: %w", s.addr, err)
		}
	}
}

// Err is closed over the end of the API server: Done tells when, Err why.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why the API server ended; nil while it runs or after Stop.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Stop stops the API server, then etcd. It waits until ctx ends at most.
func (s *Server) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
		select {
		case <-s.done:
		case <-ctx.Done():
		case <-time.After(4 * time.Second):
			// Open watches keep it from ending; etcd's own stop is what matters.
		}
	}
	stopped := make(chan struct{})
	go func() { s.etcd(); close(stopped) }()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
