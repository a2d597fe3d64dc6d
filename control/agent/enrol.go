package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"muster.dev/muster/control/agent/linkmeter"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/wire"
)

func (a *Agent) needsEnrolment() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cert == nil || !a.opts.Now().Before(a.cert.Leaf.NotAfter)
}

// isRefusal tells a clear no from a failure: asking again soon, or another server,
// won't help, a person has to act.
func isRefusal(err error) bool {
	if _, later := wire.RetryAfter(err); later {
		return false
	}
	switch status.Code(err) {
	case codes.PermissionDenied, codes.AlreadyExists, codes.InvalidArgument, codes.FailedPrecondition, codes.ResourceExhausted:
		return true
	}
	return false
}

// refusesCertificate tells whether a gateway turned the certificate away.
func refusesCertificate(err error) bool {
	return status.Code(err) == codes.Unauthenticated || status.Code(err) == codes.PermissionDenied
}

// Enrol asks one server once for a certificate. wait == 0 and no error: the site
// has one. wait > 0: registered, and waits for approval (Status says so); ask again
// after that time. The error of a refusal says what a person has to do.
func (a *Agent) Enrol(ctx context.Context) (wait time.Duration, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			a.noteError(err)
		}
	}()
	a.mu.Lock()
	join, server, bundle, pending := a.join, a.server, a.pool, a.phase == PhasePending
	a.mu.Unlock()
	if len(join.Servers) == 0 {
		return 0, ErrNotJoined
	}
	addr := join.Servers[server]
	if !pending {
		a.setPhase(PhaseEnrolling, "asks "+addr+" for a certificate")
	}
	csr, err := a.csr()
	if err != nil {
		return 0, err
	}
	conn, err := a.connect(addr, linkmeter.Stream, a.enrolTLS(addr, join.CAHash, bundle))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	cctx, cancel := context.WithTimeout(ctx, 2*a.opts.ConnectTimeout)
	defer cancel()
	resp, err := wire.NewRegistrationClient(conn).Register(cctx, &wire.RegisterRequest{
		Token: join.Token, Csr: csr, Site: join.Site, SystemLabels: a.opts.SystemLabels(), AgentVersion: a.opts.Version,
	})
	if err != nil {
		if isRefusal(err) {
			a.setPhase(PhaseRefused, status.Convert(err).Message())
			a.opts.Logger.Error("registration refused", "server", addr, "reason", status.Convert(err).Message())
		} else if _, later := wire.RetryAfter(err); later {
			a.setPhase(PhaseEnrolling, fmt.Sprintf("%s is busy: %s", addr, status.Convert(err).Message()))
			a.opts.Logger.Info("the gateway is busy; registering again soon", "server", addr, "reason", status.Convert(err).Message())
		} else {
			a.setPhase(PhaseEnrolling, fmt.Sprintf("can't reach %s: %s", addr, status.Convert(err).Message()))
			a.opts.Logger.Warn("registration failed; trying again", "server", addr, "err", status.Convert(err).Message())
		}
		return 0, err
	}
	if resp.GetIssued() == nil {
		wait = min(max(resp.GetRetryAfter().AsDuration(), time.Second), 5*time.Minute)
		if !pending {
			a.opts.Logger.Info("registered, waiting for approval", "tenant", resp.GetTenant(), "site", resp.GetSite())
		}
		a.setPhase(PhasePending, resp.GetMessage())
		return wait + rand.N(wait/4+1), nil
	}
	if err := a.keep(resp.Issued.GetCertificatePem(), resp.Issued.GetTrustBundlePem()); err != nil {
		return 0, fmt.Errorf("enrol with %s: %w", addr, err)
	}
	site, region, _ := a.Identity()
	a.opts.Logger.Info("enrolled", "site", site, "region", region, "certificate_until", resp.Issued.GetNotAfter().AsTime().Format(time.RFC3339))
	a.setPhase(PhaseConnecting, "enrolled")
	return 0, nil
}

// enrolTLS is for a machine without a certificate: it trusts the bundle if it has
// one, else the CA that the join command pins.
func (a *Agent) enrolTLS(addr, caHash string, bundle *x509.CertPool) *tls.Config {
	host, _, _ := net.SplitHostPort(addr)
	if bundle != nil {
		return identity.ClientConfig(host, func() (*tls.Certificate, *x509.CertPool, error) { return nil, bundle, nil }, identity.IsRegional)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host,
		InsecureSkipVerify: true, // VerifyConnection does it, with the pin
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := identity.VerifyPinned(cs.PeerCertificates, caHash, host, a.opts.Now())
			return err
		},
	}
}

// connect makes one gRPC connection, which does not reconnect for long: the agent
// has its own mind about where and when. of is what the connection is for, to linkmeter.
func (a *Agent) connect(addr, of string, cfg *tls.Config) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(a.link.Credentials(of, credentials.NewTLS(cfg))),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return a.link.Dial(ctx, of, func(ctx context.Context) (net.Conn, error) { return a.opts.Dial(ctx, "tcp", addr) })
		}),
		grpc.WithDisableServiceConfig(),
		// Rarer than any server's patience; a dead path shows by TCP_USER_TIMEOUT.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxDown)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return conn, nil
}

// renewAt is two thirds into the certificate's life, spread over a tenth of it. The
// life counts from when it was got: what control backdated is not life.
func (a *Agent) renewAt() time.Time {
	a.mu.Lock()
	from, until := a.renewFrom, a.cert.Leaf.NotAfter
	a.mu.Unlock()
	life := until.Sub(from)
	return from.Add(life*2/3 - life/20 + a.offset(life/10))
}

// renewLoop keeps the certificate fresh over a connection that is up; it returns
// nil when there is a new one, and ctx's error otherwise.
func (a *Agent) renewLoop(ctx context.Context, client wire.UplinkClient) error {
	wait := a.renewAt().Sub(a.opts.Now())
	for failed := 0; ; {
		a.sleep(ctx, max(wait, time.Millisecond))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err := a.renew(ctx, client)
		if err == nil {
			a.metrics.renewals.WithLabelValues("ok").Inc()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed++
		a.metrics.renewals.WithLabelValues("failed").Inc()
		wait = time.Minute/2 + rand.N(min(time.Minute<<min(failed, 5), 10*time.Minute))
		// A short-lived certificate (tests, emergencies) leaves no minutes to wait.
		a.mu.Lock()
		left := a.cert.Leaf.NotAfter.Sub(a.opts.Now())
		a.mu.Unlock()
		wait = max(min(wait, left/3), 100*time.Millisecond)
		a.noteError(fmt.Errorf("renew the certificate: %w", err))
		a.opts.Logger.Warn("can't renew the certificate; trying again", "err", status.Convert(err).Message(), "left", left.Round(time.Second), "wait", wait.Round(time.Second))
		if left <= 0 {
			return errors.New("the certificate is over")
		}
	}
}

func (a *Agent) renew(ctx context.Context, client wire.UplinkClient) error {
	csr, err := a.csr()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*a.opts.ConnectTimeout)
	defer cancel()
	out, err := client.Renew(ctx, &wire.RenewRequest{Csr: csr})
	if err != nil {
		return err
	}
	before, _, _ := a.Identity()
	if err := a.keep(out.GetCertificatePem(), out.GetTrustBundlePem()); err != nil {
		return err
	}
	if after, _, _ := a.Identity(); after != before {
		a.opts.Logger.Warn("the renewed certificate has another name", "before", before, "after", after)
	}
	a.client.CloseIdleConnections() // pushes go on with the new one
	a.opts.Logger.Info("certificate renewed", "until", out.GetNotAfter().AsTime().Format(time.RFC3339))
	return nil
}
