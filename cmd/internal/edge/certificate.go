package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	grpcstatus "google.golang.org/grpc/status"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/facts"
	"muster.dev/muster/internal/obs"
)

// CertificateOptions are the flags of `muster-edge certificate`.
type CertificateOptions struct {
	JoinOptions
	Dir   string        // of cert.pem, key.pem and bundle.pem
	Every time.Duration // how often to look; 0: once
}

// Certificate sees to the certificate of a site that another program pushes for, once or
// until ctx ends.
func Certificate(ctx context.Context, o CertificateOptions) error {
	switch {
	case o.Dir == "":
		return errors.New("--dir: give the directory for cert.pem, key.pem and bundle.pem, which the program that pushes can read")
	case o.Every != 0 && (o.Every < time.Second || o.Every > time.Hour):
		return fmt.Errorf("--every %s: want 1s to 1h, or nothing, to look once", o.Every)
	}
	a, err := o.agent()
	if err != nil {
		return err
	}
	said := ""
	for {
		again, err := a.Refresh(ctx)
		_, _, ok := a.Identity()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, agent.ErrNotJoined):
			return fmt.Errorf("%s holds no site yet: give --server, --ca-hash and --token, as `muster token create` prints them for join", o.Dir)
		case err != nil:
			err = errors.New(grpcstatus.Convert(err).Message())
			if left := until(a); left != "" {
				err = fmt.Errorf("%w; the certificate that there is %s", err, left)
			}
		case !ok:
			err = errors.New(a.Status().Message) // it waits for approval
		}
		if o.Every == 0 && err != nil {
			return err
		}
		line := ""
		if err != nil {
			line = err.Error()
		} else {
			id, _, _ := a.Identity()
			line = fmt.Sprintf("site %s of tenant %s: %s %s", id.Name, id.Tenant, filepath.Join(o.Dir, "cert.pem"), until(a))
		}
		if line != said {
			said = line
			fmt.Fprintln(o.Out, line)
		}
		if o.Every == 0 {
			return nil
		}
		wait := o.Every
		if err == nil || !ok {
			wait = min(wait, max(again, time.Second))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// until says how long the certificate is good; empty: there is none.
func until(a *agent.Agent) string {
	c := a.Status().Certificate
	switch {
	case c == nil:
		return ""
	case c.Expired:
		return "is over since " + c.NotAfter.UTC().Format(time.RFC3339)
	}
	return "is good until " + c.NotAfter.UTC().Format(time.RFC3339)
}

// agent is of the directory; flags that are left out are as they were before.
func (o *CertificateOptions) agent() (*agent.Agent, error) {
	f := facts.Discover(facts.Options{Root: os.DirFS("/")})
	if len(o.Servers) > 0 {
		if err := o.readToken(); err != nil {
			return nil, err
		}
		join := agent.JoinConfig{Servers: o.Servers, Token: o.Token, CAHash: o.CAHash, Site: o.Site}
		if before, err := agent.Joined(o.Dir); join.Site == "" && (err != nil || before.Site == "") {
			join.Site = f.Hostname
		}
		if err := agent.Join(o.Dir, join); err != nil {
			return nil, err
		}
	} else if o.CAHash != "" || o.Token != "" || o.Site != "" {
		return nil, errors.New("--server is missing; `muster token create` prints it with the others")
	}
	log, err := obs.NewLogger(io.Discard, obs.LogOptions{})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Options{Dir: o.Dir, Version: obs.Version, SystemLabels: f.Labels, Versions: f.Versions, Logger: log})
}
