package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/wire"
)

// maxAnswer bounds an answer of the HTTP API.
const maxAnswer = 64 << 20

// api is a client of the console's HTTP API, with the user's own credentials.
type api struct {
	base string
	http *http.Client
}

// addConsole registers the flag of verbs that ask the HTTP API.
func (g *Globals) addConsole(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.Console, "console", "", "URL of the console (default: $MUSTER_CONSOLE, else that of the context or DATA-DIR/"+ConsoleFile+")")
}

// consoleURL finds the console, in the order that --help tells. It guesses nothing:
// whoever is asked gets the user's token.
func (g *Globals) consoleURL() (string, error) {
	from, raw := "--console", g.Console
	if raw == "" {
		from, raw = "$MUSTER_CONSOLE", os.Getenv("MUSTER_CONSOLE")
	}
	if raw == "" {
		from, raw = "the context of the kubeconfig", g.contextExtra().Console
	}
	if raw == "" {
		from = filepath.Join(g.DataDir, ConsoleFile)
		b, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("no console is known: name it with --console or $MUSTER_CONSOLE, or start a fleet with `muster up` in %s", g.DataDir)
		}
		raw = strings.TrimSpace(string(b))
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s %q: want a URL such as https://muster.example.com", from, raw)
	}
	return strings.TrimRight(raw, "/"), nil
}

// api logs in with the bearer token of the kubeconfig, as kubectl would.
func (g *Globals) api() (*api, error) {
	base, err := g.consoleURL()
	if err != nil {
		return nil, err
	}
	cfg, err := g.restConfig()
	if err != nil {
		return nil, err
	}
	if cfg.BearerToken == "" && cfg.BearerTokenFile == "" && cfg.ExecProvider == nil && cfg.AuthProvider == nil {
		return nil, fmt.Errorf("the user in %s has no token, which the console needs (a client certificate is for the Kubernetes API only); use a kubeconfig with a token, such as the one that `muster kubeconfig` prints", g.kubeconfigPath())
	}
	// The kubeconfig's CA is the Kubernetes API's, not the console's.
	rt, err := rest.HTTPWrappersForConfig(&rest.Config{BearerToken: cfg.BearerToken, BearerTokenFile: cfg.BearerTokenFile, UserAgent: "muster/" + obs.Version}, http.DefaultTransport)
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil {
		plain := rest.AnonymousClientConfig(cfg)
		plain.ExecProvider, plain.AuthProvider, plain.TLSClientConfig = cfg.ExecProvider, cfg.AuthProvider, rest.TLSClientConfig{}
		rt, err = rest.TransportFor(plain)
	}
	if err != nil {
		return nil, fmt.Errorf("credentials of %s: %w", g.kubeconfigPath(), err)
	}
	return &api{base: base, http: &http.Client{Transport: rt}}, nil
}

// query returns the parameters that all verbs have.
func (g *Globals) query() url.Values {
	q := url.Values{}
	if t := g.tenantName(); t != "" {
		q.Set("tenant", t)
	}
	return q
}

// do sends a request and returns the answer of a status below 300; the caller
// closes its body.
func (a *api) do(ctx context.Context, method, path string, q url.Values, body any, header http.Header) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	target := a.base + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var op *url.Error
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("reach the console at %s: %w; is it running? name another with --console", a.base, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemOf(resp)
}

// problemOf turns a problem+json answer into one line.
func problemOf(resp *http.Response) error {
	p := wire.ReadProblem(resp)
	if p == nil || p.Title+p.Detail == "" {
		return &refusal{resp.StatusCode, "the console answered " + resp.Status}
	}
	if p.Detail == "" {
		p.Detail = p.Title
	}
	if resp.StatusCode == http.StatusUnauthorized {
		p.Detail += "; check the token in the kubeconfig"
	}
	return &refusal{resp.StatusCode, p.Detail}
}

// get decodes the answer of a GET into out.
func (a *api) get(ctx context.Context, path string, q url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	resp, err := a.do(ctx, http.MethodGet, path, q, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("answer of %s: %w", path, err)
	}
	return nil
}

// send sends a body and decodes the answer into out, if there is one.
func (a *api) send(ctx context.Context, method, path string, q url.Values, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := a.do(ctx, method, path, q, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("answer of %s: %w", path, err)
	}
	return nil
}
