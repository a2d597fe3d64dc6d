// Package registration decides which machine becomes a site and which site gets a
// certificate: it checks registration tokens and certificate requests, makes the
// Site, counts the token's uses, and writes an audit record of each decision.
//
// It holds no connection and no stream (control/fleetapi does, and calls it), writes
// no status of Sites (control/fleetapi does, in one write with what else it learns of a
// site that has just come) and signs nothing itself (control/pki does). A refusal never
// leaves a Site behind.
package registration

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

// LabelKey on a Site is the first 63 hex digits of the hash of its public key, so
// that a site is found by its key.
const LabelKey = "muster.dev/key"

// Issuer signs for sites; *pki.CA is one.
type Issuer interface {
	IssueSite(pub crypto.PublicKey, site fleet.SiteID, region string) (pki.Issued, error)
}

// Recorder writes Kubernetes events; a record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Options of New; Client, Issuer, Logger and Registerer are required.
type Options struct {
	// Client must read from the API server, not from a cache: a cache that lags
	// would count uses wrong. Its rate limit must be off (rest.Config.QPS = -1).
	Client client.Client
	// Cache, after IndexKeys, answers what nearly always is answered the same: which token,
	// which tenant, which site has this key. It may lag: what it does not know is asked
	// of Client, and so is all that a refusal or a second certificate rests on. Nil: Client.
	Cache  client.Reader
	Issuer Issuer
	// Certified hears of each certificate: its Site as it is now, which nobody changes
	// afterwards, and until when it is good. It says whether it is the first of that site,
	// and must be quick. Nil: the Site's status says so.
	Certified  func(site *v1alpha1.Site, notAfter time.Time) (first bool)
	Audit      *Audit   // nil: none
	Recorder   Recorder // nil: none
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// SiteQuota of a tenant that sets none; 0: no limit.
	SiteQuota int32
	// Concurrency bounds the requests in work; others wait, and tenants take turns. Default 64.
	Concurrency int
	Now         func() time.Time
}

// Service registers sites. Safe for concurrent use.
type Service struct {
	opts   Options
	line   *turns.Line
	locks  keyedMutex
	ledger ledger
	sites  siteCounts
	total  *prometheus.CounterVec
	took   *prometheus.HistogramVec
}

// maxWaiting is how many requests wait for others, and patience for how long. A tenant has
// half of the places at most, so thousands of machines that come at once do.
const (
	maxWaiting = 16 << 10
	patience   = 20 * time.Second
)

// New returns a Service.
func New(o Options) *Service {
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{
		opts: o,
		line: turns.NewLine(o.Concurrency, maxWaiting),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_registrations_total", Help: "Registrations and renewals by how they ended.",
		}, []string{"result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_registration_duration_seconds", Help: "How long a registration or renewal took.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"op"}),
	}
	for _, r := range results {
		s.total.WithLabelValues(string(r))
	}
	o.Registerer.MustRegister(s.total, s.took)
	return s
}

// attempt is one request on its way through; the audit record fills up as it goes.
type attempt struct {
	who   turns.Member
	rec   Record
	token *v1alpha1.RegistrationToken // set once the secret was right, or the name exists
	quiet bool                        // nothing new: count it, but write no record
}

// Register answers a machine that wants to be a site. It is idempotent for the
// same key: the same site comes back and no second use of the token is counted.
// The error is a *Refusal.
func (s *Service) Register(ctx context.Context, req *wire.RegisterRequest, remoteAddr string) (*wire.RegisterResponse, error) {
	// Whose token it is the machine says itself, so renewals have turns of their own.
	tok, _ := ParseToken(req.GetToken())
	csr := sha256.Sum256(req.GetCsr())
	a := &attempt{who: turns.Member{Tenant: "register " + tok.Tenant, Name: string(csr[:])}, rec: Record{RemoteAddr: clip(remoteAddr, 64), Agent: clip(req.GetAgentVersion(), 64)}}
	var resp *wire.RegisterResponse
	err := s.run(ctx, "register", a, host(remoteAddr), func(ctx context.Context) (result Result, err error) {
		resp, result, err = s.register(ctx, req, a)
		return result, err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Renew gives an approved site a fresh certificate for its own key. The caller
// vouches for tenant and site: they come from the certificate of the stream. The
// error is a *Refusal.
func (s *Service) Renew(ctx context.Context, site fleet.SiteID, csrDER []byte) (*wire.Issued, error) {
	a := &attempt{who: turns.Member{Tenant: "renew " + site.Tenant, Name: site.Name}, rec: Record{Tenant: clip(site.Tenant, 64), Site: clip(site.Name, 64)}}
	var issued *wire.Issued
	err := s.run(ctx, "renew", a, site.String(), func(ctx context.Context) (result Result, err error) {
		issued, err = s.renew(ctx, site, csrDER, a)
		return Renewed, err
	})
	if err != nil {
		return nil, err
	}
	return issued, nil
}

func (s *Service) run(ctx context.Context, op string, a *attempt, source string, do func(context.Context) (Result, error)) error {
	release, err := s.line.Acquire(ctx, a.who, patience)
	if err != nil {
		return refuse(Failed, codes.Unavailable, "control is busy with other registrations; try again")
	}
	defer release()
	began := s.opts.Now()
	// A machine that hangs up half-way must not leave a use counted and no site.
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	result, err := do(work)
	s.took.WithLabelValues(op).Observe(s.opts.Now().Sub(began).Seconds())
	var ref *Refusal
	if err != nil && !errors.As(err, &ref) {
		s.opts.Logger.Error("registration failed", "op", op, "tenant", a.rec.Tenant, "site", a.rec.Site, "err", err)
		ref = refuse(Failed, codes.Unavailable, "control could not finish the registration; the agent will try again")
		a.rec.Message = clip(err.Error(), 300)
	}
	if ref != nil {
		result = ref.Result
		if a.rec.Message == "" {
			a.rec.Message = ref.Message
		}
	}
	s.total.WithLabelValues(string(result)).Inc()
	s.note(result, ref, source, a)
	if ref != nil {
		return ref
	}
	return nil
}

// note writes the audit record and the event.
func (s *Service) note(result Result, ref *Refusal, source string, a *attempt) {
	if a.quiet && ref == nil {
		return
	}
	a.rec.Result = string(result)
	if s.opts.Audit != nil {
		if err := s.opts.Audit.Write(source, a.rec); err != nil {
			s.opts.Logger.Error("audit record lost", "err", err, "record", a.rec)
		}
	}
	if s.opts.Recorder == nil || a.token == nil {
		return
	}
	if ref != nil {
		s.opts.Recorder.Event(a.token, "Warning", "RegistrationRefused", fmt.Sprintf("%s from %s: %s", result, a.rec.RemoteAddr, a.rec.Message))
	} else {
		s.opts.Recorder.Event(a.token, "Normal", "SiteRegistered", fmt.Sprintf("site %s from %s: %s", a.rec.Site, a.rec.RemoteAddr, result))
	}
}

func (s *Service) register(ctx context.Context, req *wire.RegisterRequest, a *attempt) (*wire.RegisterResponse, Result, error) {
	tok, err := ParseToken(req.GetToken())
	if err != nil {
		return nil, "", refuse(Malformed, codes.PermissionDenied, "registration "+err.Error())
	}
	a.rec.Tenant, a.rec.Token = tok.Tenant, tok.Name
	csr, err := pki.ParseCSR(req.GetCsr())
	if err != nil {
		return nil, "", refuse(Malformed, codes.InvalidArgument, clip(err.Error(), 300))
	}
	a.rec.Key = csr.KeyHash
	rt, tenant, err := s.checkSecret(ctx, tok, a)
	if err == nil && rt.Spec.Revoked {
		err = refuse(Revoked, codes.PermissionDenied, fmt.Sprintf("registration token %s was revoked; ask for a new one (`muster token create`)", rt.Name))
	}
	if err != nil {
		if back, result, berr := s.back(ctx, req, tok.Tenant, csr, a); back != nil || berr != nil {
			return back, result, berr
		}
		return nil, "", err
	}
	// One request at a time for one key: a retry that overtakes its first attempt
	// must find what that one made.
	defer s.locks.lock("key " + tok.Tenant + " " + csr.KeyHash)()
	site, err := s.siteByKey(ctx, rt, csr.KeyHash)
	if err != nil {
		return nil, "", err
	}
	fresh := site == nil
	if fresh {
		if back, result, err := s.back(ctx, req, tok.Tenant, csr, a); back != nil || err != nil {
			return back, result, err
		}
		if site, fresh, err = s.admit(ctx, req, rt, tenant, csr, a); err != nil {
			return nil, "", err
		}
	} else if want := req.GetSite(); want != "" && want != site.Name {
		return nil, "", refuse(NameTaken, codes.AlreadyExists, fmt.Sprintf(
			"this machine's key is registered as site %s, not %s; join under that name, or remove the agent's state directory to become another site", site.Name, clip(want, 64)))
	}
	a.rec.Site = site.Name
	return s.answer(site, csr, fresh, a)
}

// checkSecret finds the token and compares secrets. All that is wrong looks the same.
func (s *Service) checkSecret(ctx context.Context, tok Token, a *attempt) (*v1alpha1.RegistrationToken, *v1alpha1.Tenant, error) {
	if s.opts.Cache != nil {
		// Whether the token still lets one in is asked again when its use is counted.
		if rt, tenant, err := s.checkSecretIn(ctx, s.opts.Cache, tok, a); err == nil && s.usable(rt) == nil {
			return rt, tenant, nil
		}
	}
	return s.checkSecretIn(ctx, s.opts.Client, tok, a)
}

func (s *Service) checkSecretIn(ctx context.Context, from client.Reader, tok Token, a *attempt) (*v1alpha1.RegistrationToken, *v1alpha1.Tenant, error) {
	var rt v1alpha1.RegistrationToken
	err := from.Get(ctx, types.NamespacedName{Namespace: fleet.SystemNamespace(tok.Tenant), Name: tok.Name}, &rt)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("read token %s/%s: %w", tok.Tenant, tok.Name, err)
	}
	var tenant v1alpha1.Tenant
	terr := from.Get(ctx, types.NamespacedName{Name: tok.Tenant}, &tenant)
	if terr != nil && !apierrors.IsNotFound(terr) {
		return nil, nil, fmt.Errorf("read tenant %s: %w", tok.Tenant, terr)
	}
	if err == nil {
		a.token = &rt
	}
	want := rt.Spec.SecretHash // empty when not found: equal to no hash
	same := subtle.ConstantTimeCompare([]byte(tok.SecretHash()), []byte(want)) == 1
	if err != nil || terr != nil || !same || tenant.DeletionTimestamp != nil || rt.DeletionTimestamp != nil {
		return nil, nil, badToken()
	}
	return &rt, &tenant, nil
}

// keyIndex is the index of Sites by tenant's namespace and public key, see IndexKeys.
const keyIndex = "spec.publicKey"

// IndexKeys makes a cache find the Site of a key, as Options.Cache must.
func IndexKeys(ctx context.Context, cache client.FieldIndexer) error {
	return cache.IndexField(ctx, &v1alpha1.Site{}, keyIndex, func(o client.Object) []string {
		if site := o.(*v1alpha1.Site); site.Spec.PublicKey != "" {
			return []string{site.Spec.PublicKey}
		}
		return nil
	})
}

// siteByKey is nil if there is none. A cache that lags doesn't know the Site that this key
// made a moment ago: chooseName finds it by its name.
func (s *Service) siteByKey(ctx context.Context, rt *v1alpha1.RegistrationToken, keyHash string) (*v1alpha1.Site, error) {
	var list v1alpha1.SiteList
	if s.opts.Cache != nil && s.usable(rt) == nil {
		if err := s.opts.Cache.List(ctx, &list, client.InNamespace(rt.Namespace), client.MatchingFields{keyIndex: keyHash}); err != nil {
			return nil, fmt.Errorf("find the site of a key in %s: %w", rt.Namespace, err)
		}
		if len(list.Items) == 0 {
			return nil, nil
		}
	}
	// One that the cache knows may have been retired or deleted since; and before a token that
	// lets nobody in refuses somebody, the cache's word is not enough.
	if err := s.opts.Client.List(ctx, &list, client.InNamespace(rt.Namespace), client.MatchingLabels{LabelKey: keyHash[:63]}); err != nil {
		return nil, fmt.Errorf("find the site of a key in %s: %w", rt.Namespace, err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.PublicKey == keyHash {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// answer is for a site that exists and has this key.
func (s *Service) answer(site *v1alpha1.Site, csr pki.CSR, fresh bool, a *attempt) (*wire.RegisterResponse, Result, error) {
	id := siteID(site)
	switch {
	case site.Spec.Decommissioned:
		return nil, "", retired(id)
	case !site.Spec.Approved:
		a.quiet = !fresh
		return &wire.RegisterResponse{
			Tenant: id.Tenant, Site: id.Name, RetryAfter: durationpb.New(s.retryAfter(site)),
			Message: fmt.Sprintf("site %s waits for approval: `muster approve %s --tenant %s`, or the console", id.Name, id.Name, id.Tenant),
		}, Pending, nil
	}
	issued, first, err := s.issue(site, csr)
	if err != nil {
		return nil, "", err
	}
	result := Reissued
	if first {
		result = Granted
	}
	return &wire.RegisterResponse{Tenant: id.Tenant, Site: id.Name, Issued: issued, Message: fmt.Sprintf("site %s is registered", id.Name)}, result, nil
}

// retryAfter is short while somebody is likely to be looking.
func (s *Service) retryAfter(site *v1alpha1.Site) time.Duration {
	if s.opts.Now().Sub(site.CreationTimestamp.Time) < 10*time.Minute {
		return 5 * time.Second
	}
	return 30 * time.Second
}

func retired(id fleet.SiteID) *Refusal {
	return refuse(Retired, codes.PermissionDenied, fmt.Sprintf("site %s was decommissioned; to use the machine again, delete the Site and register it anew", id))
}

func (s *Service) renew(ctx context.Context, id fleet.SiteID, csrDER []byte, a *attempt) (*wire.Issued, error) {
	if err := id.Validate(); err != nil {
		return nil, refuse(Malformed, codes.InvalidArgument, clip(err.Error(), 300))
	}
	csr, err := pki.ParseCSR(csrDER)
	if err != nil {
		return nil, refuse(Malformed, codes.InvalidArgument, clip(err.Error(), 300))
	}
	a.rec.Key = csr.KeyHash
	var site v1alpha1.Site
	err = s.opts.Client.Get(ctx, types.NamespacedName{Namespace: fleet.SystemNamespace(id.Tenant), Name: id.Name}, &site)
	if apierrors.IsNotFound(err) {
		return nil, refuse(NotKnown, codes.PermissionDenied, fmt.Sprintf("site %s does not exist any more; register the machine anew", id))
	}
	if err != nil {
		return nil, fmt.Errorf("read site %s: %w", id, err)
	}
	switch {
	case site.Spec.Decommissioned:
		return nil, retired(id)
	case !site.Spec.Approved:
		return nil, refuse(NotYet, codes.PermissionDenied, fmt.Sprintf("site %s is not approved (any more): `muster approve %s --tenant %s`", id, id.Name, id.Tenant))
	case site.Spec.PublicKey != csr.KeyHash:
		return nil, refuse(WrongKey, codes.PermissionDenied, fmt.Sprintf("site %s registered with another key; delete the Site and register the machine anew", id))
	}
	issued, _, err := s.issue(&site, csr)
	return issued, err
}

// issue signs a certificate; first: the site had none before.
func (s *Service) issue(site *v1alpha1.Site, csr pki.CSR) (_ *wire.Issued, first bool, _ error) {
	out, err := s.opts.Issuer.IssueSite(csr.PublicKey, siteID(site), site.Labels[fleet.LabelRegion])
	if err != nil {
		return nil, false, err
	}
	first = site.Status.CertificateNotAfter == nil
	if s.opts.Certified != nil {
		first = s.opts.Certified(site, out.Leaf.NotAfter)
	}
	return &wire.Issued{CertificatePem: out.CertPEM, TrustBundlePem: out.BundlePEM, NotAfter: timestamppb.New(out.Leaf.NotAfter)}, first, nil
}

func siteID(site *v1alpha1.Site) fleet.SiteID {
	tenant, _ := fleet.TenantOfSystemNamespace(site.Namespace)
	return fleet.SiteID{Tenant: tenant, Name: site.Name}
}

func host(addr string) string {
	if h, _, err := net.SplitHostPort(addr); err == nil {
		return h
	}
	return clip(addr, 64)
}

// clip keeps a stranger's text short and on one line.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return unprintable.ReplaceAllString(s, "?")
}

var unprintable = regexp.MustCompile(`[^\x20-\x7e]`)
