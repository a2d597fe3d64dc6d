// Package apiserver runs the stock Kubernetes API server in this process, without
// kubelets, on an embedded or an external etcd, and installs Muster's CRDs in it.
//
// It is the one home of k8s.io/kubernetes and etcd's server in what ships, which take
// minutes to build; clusters for tests begin with Prepare and StartEtcd. The API server
// keeps process-wide state, so one process runs one. It is started by cmd/internal/control
// and by tests through internal/testkit/kubeapi.
package apiserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"muster.dev/muster/control/api/kinds"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/quota"
	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/kubetls"
	"muster.dev/muster/internal/strangers"
)

// Etcd names an external etcd.
type Etcd struct {
	Endpoints                 []string
	CAFile, CertFile, KeyFile string
}

// OIDC lets users log in with an identity provider; an empty IssuerURL turns it off.
// The prefixes are compulsory: they keep the provider's system:masters from being
// Kubernetes' own.
type OIDC struct {
	IssuerURL, ClientID, UsernameClaim, GroupsClaim string
	UsernamePrefix, GroupsPrefix                    string
	CAFile                                          string // empty: the system's CAs
}

func (o OIDC) args() ([]string, error) {
	if o.IssuerURL == "" {
		return nil, nil
	}
	for field, prefix := range map[string]string{"username prefix": o.UsernamePrefix, "groups prefix": o.GroupsPrefix} {
		if err := fleet.ValidateIDPrefix(prefix); err != nil {
			return nil, fmt.Errorf("OIDC: %s: %w", field, err)
		}
	}
	var out []string
	for flag, v := range map[string]string{"issuer-url": o.IssuerURL, "client-id": o.ClientID, "username-claim": o.UsernameClaim, "groups-claim": o.GroupsClaim,
		"username-prefix": o.UsernamePrefix, "groups-prefix": o.GroupsPrefix, "ca-file": o.CAFile} {
		if v != "" {
			out = append(out, "--oidc-"+flag+"="+v)
		}
	}
	return out, nil
}

// Options of a Server.
type Options struct {
	Dir      string // state of the API server: etcd, keys, audit log
	Listen   string // HOST:PORT; port 0: any free one
	CertFile string // serving certificate and key, PEM
	KeyFile  string
	CAPEM    []byte // what clients shall trust; Trust changes it
	// KubeconfigDir gets admin.kubeconfig and admin.token, and a kubeconfig for
	// each of Users.
	KubeconfigDir string
	// Users are further identities with a token of their own: name → groups. Each
	// named muster:<name> gets Dir/<name>.kubeconfig.
	Users map[string][]string
	Etcd  Etcd
	OIDC  OIDC
	// Reach says whether receivers may connect to HOST:PORT, for an early answer to an
	// AlertRoute that they can't use; nil: all.
	Reach func(address string) error
	// Quotas of a tenant that sets none; 0: no limit.
	Quotas v1alpha1.TenantQuotas
	// Virtual is where virtual Kubernetes clusters are served; nil: nowhere.
	Virtual *vk8s.Mount
	Logger  *slog.Logger
	// Closed hears of connections that were closed since their peers had not shown who they
	// are, see strangers.NewDoor; nil: nobody does.
	Closed func(reason, host string)
}

// Server is a running API server. Its methods may be called at any time.
type Server struct {
	o      Options
	log    quiet
	addr   string
	tokens map[string]string // by name of user
	ledger *quota.Ledger
	ca     atomic.Pointer[trust]
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	etcd   func()
	// embedded is where the embedded etcd is reached; "": it is an external one.
	embedded string

	stopOnce sync.Once
	stopped  chan struct{}
}

// trust are the CAs that vouch for the API server.
type trust struct {
	pem     []byte
	pool    *x509.CertPool
	changed chan struct{} // closed when others took their place
}

// Trust has clients trust other CAs from now on: the configurations that Config and
// ConfigOf returned, at their next connection, and the kubeconfigs, which are rewritten.
// The serving certificate is read again by itself when its file changes.
func (s *Server) Trust(caPEM []byte) error {
	if err := s.trust(caPEM); err != nil {
		return err
	}
	return s.writeKubeconfigs()
}

func (s *Server) trust(caPEM []byte) error {
	cas, err := identity.ParseBundle(caPEM)
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	if before := s.ca.Swap(&trust{caPEM, identity.PoolOf(cas), make(chan struct{})}); before != nil {
		close(before.changed)
	}
	return nil
}

// Gatherer is where the API server and etcd register their metrics.
func Gatherer() prometheus.Gatherer { return legacyregistry.DefaultGatherer }

// Start starts the API server and returns when it is ready and the CRDs are
// served. A process starts one: its libraries keep process-wide state.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	oidc, err := o.OIDC.args()
	if err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, err
	}
	// Without it etcd would wait for its database without a word.
	lock, err := disk.LockFile(filepath.Join(o.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	log := newQuiet(o.Logger.Handler())
	klog.SetSlogLogger(slog.New(log))
	s := &Server{o: o, log: log, done: make(chan struct{}), stopped: make(chan struct{}), etcd: func() { _ = lock.Close() }}
	defer func() {
		if err != nil {
			_ = s.Stop(context.Background())
		}
	}()
	if err := s.trust(o.CAPEM); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("API server: listen on %s: %w; stop what holds it or choose another address", o.Listen, err)
	}
	defer func() {
		if err != nil {
			_ = ln.Close()
		}
	}()
	bound := ln.Addr().(*net.TCPAddr)
	host, _, _ := net.SplitHostPort(o.Listen)
	s.addr = net.JoinHostPort(host, strconv.Itoa(bound.Port))

	endpoints := o.Etcd.Endpoints
	if len(endpoints) == 0 {
		endpoint, stop, err := StartEtcd(ctx, filepath.Join(o.Dir, "etcd"), o.Logger)
		if err != nil {
			return nil, err
		}
		endpoints, s.etcd = []string{endpoint}, func() { stop(); _ = lock.Close() }
		s.embedded = endpoint
	}
	args, err := s.args(endpoints, bound, oidc)
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(context.Background())
	s.ledger = quota.New(quota.Options{Defaults: o.Quotas})
	if err := follow(runCtx, endpoints, o.Etcd, s.ledger, o.Logger); err != nil {
		cancel()
		return nil, err
	}
	carried, moved := newWorkloads(), newRollouts()
	door := strangers.NewDoor(ln, strangers.Usual, nil, o.Closed)
	run, loopback, err := Prepare(runCtx, args, door,
		func(so *options.ServerRunOptions) {
			addAdmission(so, kinds.Env{Reach: o.Reach}, s.ledger, carried, moved)
		},
		func(config *app.Config) {
			tellVersion(config)
			charge(config, s.ledger, door.Known)
			thinAudit(config, s.ledger.TenantOf)
			if o.Virtual != nil {
				mount(config, o.Virtual)
			}
		})
	if err == nil {
		err = errors.Join(carried.use(loopback), moved.use(loopback))
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("API server: %w", err)
	}
	s.cancel = cancel
	go func() {
		defer close(s.done)
		s.err = run(runCtx)
	}()
	if err := s.furnish(ctx, runCtx, loopback); err != nil {
		return nil, err
	}
	log.up.Store(true)
	// The start leaves some 80 MiB of garbage that the process would keep.
	debug.FreeOSMemory()
	return s, nil
}

// furnish waits for the server and gives it what Muster needs of it; controllers run until
// runCtx ends.
func (s *Server) furnish(ctx, runCtx context.Context, loopback *rest.Config) error {
	if err := s.writeKubeconfigs(); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, loopback); err != nil {
		return err
	}
	if err := installCRDs(ctx, loopback); err != nil {
		return err
	}
	err := runControllers(runCtx, loopback, accounts{key: s.accountKey(), trust: func() ([]byte, <-chan struct{}) {
		t := s.ca.Load()
		return t.pem, t.changed
	}, log: s.o.Logger})
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	return nil
}

// Prepare builds a stock API server on a listener, with kube-apiserver's own flags, and
// returns what runs it until its context ends. change and changeConfig, unless they are
// nil, change what the flags can't. The configuration that it returns is the one with which
// the server talks to itself, as system:apiserver. It is exported for test clusters, whose
// API server has nothing of Muster.
func Prepare(ctx context.Context, args []string, ln net.Listener, change func(*options.ServerRunOptions), changeConfig func(*app.Config)) (func(context.Context) error, *rest.Config, error) {
	o := options.NewServerRunOptions()
	if change != nil {
		change(o)
	}
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	o.SecureServing.Listener = ln
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, nil, err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return nil, nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, nil, err
	}
	if changeConfig != nil {
		changeConfig(config)
	}
	loopback := rest.CopyConfig(config.KubeAPIs.ControlPlane.Generic.LoopbackClientConfig)
	complete, err := config.Complete()
	if err != nil {
		return nil, nil, err
	}
	server, err := app.CreateServerChain(complete)
	if err != nil {
		return nil, nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, nil, err
	}
	return prepared.Run, loopback, nil
}

// accountKey is the file of the key that signs tokens of service accounts.
func (s *Server) accountKey() string { return filepath.Join(s.o.Dir, "service-account.key") }

// args are the flags of kube-apiserver, as its documentation has them.
func (s *Server) args(endpoints []string, bound *net.TCPAddr, oidc []string) ([]string, error) {
	o := s.o
	saKey := s.accountKey()
	if err := ensureKey(saKey); err != nil {
		return nil, err
	}
	tokens := filepath.Join(o.Dir, "tokens.csv")
	var err error
	if s.tokens, err = ensureTokens(tokens, o.Users); err != nil {
		return nil, err
	}
	policy := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := atomicfile.Write(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--etcd-servers=" + strings.Join(endpoints, ","),
		"--bind-address=" + bound.IP.String(), "--secure-port=" + strconv.Itoa(bound.Port), "--advertise-address=127.0.0.1",
		"--tls-cert-file=" + o.CertFile, "--tls-private-key-file=" + o.KeyFile,
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://muster.local", "--service-account-key-file=" + saKey, "--service-account-signing-key-file=" + saKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		// There are no nodes: no endpoints of this server to reconcile, and nothing that
		// these plugins could protect. ServiceAccount changes pods, which are a site's;
		// DefaultStorageClass would take the choice from the sites' own default, and
		// StorageObjectInUseProtection sets a finalizer that nobody here removes.
		"--endpoint-reconciler-type=none",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,DefaultStorageClass,StorageObjectInUseProtection",
		// Each tenant's Pod Security Standard says who may have privileged pods.
		"--allow-privileged=true",
		"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(o.Dir, "audit.log"),
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
	return slices.Concat(args, auditArgs, seats(runtime.GOMAXPROCS(0)), oidc), nil
}

// seats are how many requests are served at one time. Fair queuing shares out seats, not
// processors: Kubernetes' own 600 on two of these have nobody wait in a queue, and everybody for a
// processor, whoever it is that keeps them busy. Watches have a seat until they have begun.
func seats(processors int) []string {
	reads := min(max(50*processors, 100), 400)
	return []string{"--max-requests-inflight=" + strconv.Itoa(reads), "--max-mutating-requests-inflight=" + strconv.Itoa(reads/2)}
}

// Addr is HOST:PORT of the API server.
func (s *Server) Addr() string { return s.addr }

// Usage is what a tenant has stored.
func (s *Server) Usage(tenant string) quota.Usage { return s.ledger.Usage(tenant) }

// Holds tells whether a namespace has an object of a kind that has a definition, though it
// may be that it can't be read.
func (s *Server) Holds(namespace string, of schema.GroupResource) bool {
	return s.ledger.Holds(namespace, of.Group+"/"+of.Resource)
}

// Config is a client configuration of the administrator.
func (s *Server) Config() *rest.Config { return s.config(s.tokens[adminUser]) }

// ConfigOf is a client configuration of one of Options.Users, so that the audit
// log tells Muster's own roles from the administrator. An unknown user gets one
// that is refused.
func (s *Server) ConfigOf(user string) *rest.Config {
	if _, ok := s.o.Users[user]; !ok {
		return s.config("unknown")
	}
	return s.config(s.tokens[user])
}

func (s *Server) config(token string) *rest.Config {
	cfg := &rest.Config{Host: "https://" + s.reach(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.Load().pem}, QPS: 200, Burst: 400}
	if err := kubetls.Follow(cfg, func() (*x509.CertPool, error) { return s.ca.Load().pool, nil }); err != nil {
		panic(err) // only for an address that is none
	}
	return cfg
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
		c.Clusters["muster"] = &clientcmdapi.Cluster{Server: "https://" + s.reach(), CertificateAuthorityData: s.ca.Load().pem}
		c.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
		c.Contexts["muster"] = &clientcmdapi.Context{Cluster: "muster", AuthInfo: user}
		c.CurrentContext = "muster"
		b, err := clientcmd.Write(*c)
		if err != nil {
			return err
		}
		return atomicfile.Write(path, b, 0o600)
	}
	admin := s.tokens[adminUser]
	if err := write(filepath.Join(s.o.KubeconfigDir, "admin.kubeconfig"), "admin", admin); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.o.KubeconfigDir, "admin.token"), []byte(admin+"\n"), 0o600); err != nil {
		return err
	}
	for user := range s.o.Users {
		if name, ok := strings.CutPrefix(user, "muster:"); ok {
			if err := write(filepath.Join(s.o.Dir, name+".kubeconfig"), name, s.tokens[user]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context, cfg *rest.Config) error {
	client, err := rest.UnversionedRESTClientFor(unversioned(cfg))
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
			if s.err != nil {
				err = s.err
			}
			return fmt.Errorf("API server on %s: %w", s.addr, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("API server on %s was not ready within 2 minutes: %w", s.addr, err)
		}
	}
}

// Done is closed when the API server has ended; Err says why.
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

// Stop stops the API server, then etcd. It waits until ctx ends at most; another
// call waits for the same stop.
func (s *Server) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		go func() {
			defer close(s.stopped)
			s.log.up.Store(false)
			if s.cancel != nil {
				s.cancel()
				select {
				case <-s.done:
				case <-time.After(serverStop):
					// Open requests keep it from ending; etcd's own stop is what matters.
				}
			}
			s.etcd()
		}()
	})
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the API server: %w", ctx.Err())
	}
}

// serverStop bounds the API server's part of a stop.
const serverStop = 4 * time.Second
