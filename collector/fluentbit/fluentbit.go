// Package fluentbit sends the log chunks of a site's Fluent Bit to the regional
// intake: compressed, over mTLS with the site's own identity, which the agent keeps
// in its state directory and renews. It is the core of the output plugin in
// plugin/, which is a thin shim between it and Fluent Bit.
//
// It must not keep chunks: Fluent Bit does that, and sends each again until Flush
// says OK or Error. It knows nothing of collector's metrics. Only plugin/ calls it.
//
// Configuration keys of the plugin (name: muster):
//
//	Endpoint       the intake, https://HOST:PORT; required
//	Identity_Dir   the agent's directory (key.pem, cert.pem, bundle.pem); default /var/lib/muster-edge/agent
//	Timeout        of one flush, as 10s; default 10s, at most 60s
//	Compress       gzip (default) or off
//
// With workers 0 Fluent Bit flushes on its engine's own thread, and a slow flush
// stalls every input: set workers to 1 or more. With several, flushes of one
// instance run side by side. Retry_Limit and storage.* are Fluent Bit's own and
// decide how long a chunk is kept.
package fluentbit

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/identity"
)

// Outcome of a flush, as Fluent Bit understands it.
type Outcome int

const (
	OK    Outcome = iota // done with
	Retry                // send the chunk again later, by Fluent Bit's retry rules
	Error                // drop the chunk: it will never be taken
)

// Config of one instance.
type Config struct {
	Endpoint    string
	IdentityDir string
	Timeout     time.Duration
	Compress    bool
}

// Defaults of Config.
const (
	DefaultIdentityDir = "/var/lib/muster-edge/agent"
	DefaultTimeout     = 10 * time.Second
	maxTimeout         = time.Minute
)

// ParseConfig reads the keys by get, which returns "" for one that is not set. An
// error names the key and what it wants.
func ParseConfig(get func(key string) string) (Config, error) {
	c := Config{Endpoint: get("Endpoint"), IdentityDir: get("Identity_Dir"), Timeout: DefaultTimeout, Compress: true}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.User != nil {
		return c, fmt.Errorf("Endpoint %q: want https://HOST:PORT of the regional's log intake", c.Endpoint)
	}
	c.Endpoint = "https://" + u.Host
	if c.IdentityDir == "" {
		c.IdentityDir = DefaultIdentityDir
	}
	if s := get("Timeout"); s != "" {
		d, err := time.ParseDuration(s)
		if n, nerr := strconv.Atoi(s); nerr == nil {
			d, err = time.Duration(n)*time.Second, nil
		}
		if err != nil || d < time.Second || d > maxTimeout {
			return c, fmt.Errorf("Timeout %q: want 1s to %s", s, maxTimeout)
		}
		c.Timeout = d
	}
	switch s := strings.ToLower(get("Compress")); s {
	case "", "gzip":
	case "off", "none", "false":
		c.Compress = false
	default:
		return c, fmt.Errorf("Compress %q: want gzip or off", s)
	}
	return c, nil
}

// Output is one instance of the plugin. Safe for concurrent use.
type Output struct {
	cfg        Config
	log        *slog.Logger
	server     string // its name
	gzips      sync.Pool
	ident      *files
	deliveries deliveries

	mu       sync.Mutex
	client   *http.Client
	pair     *tls.Certificate // that client's connections are made with
	notUntil time.Time        // the intake asked to wait
	warned   time.Time
}

// New does no I/O: a site that has not joined yet keeps its logs until it has.
func New(cfg Config, log *slog.Logger) (*Output, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("Endpoint: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	o := &Output{cfg: cfg, log: log, server: u.Hostname(), ident: &files{dir: cfg.IdentityDir}}
	o.deliveries.init()
	o.client = o.newClient()
	return o, nil
}

func (o *Output) newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:     identity.ClientConfig(o.server, o.ident.current, identity.IsRegional),
			MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: o.cfg.Timeout, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// connection returns the client to send with. After a renewal of the certificate it is
// another one, so that no connection lives on with the old certificate until the
// intake refuses it; flushes that are under way end on theirs.
func (o *Output) connection() *http.Client {
	pair, _, _ := o.ident.current() // why there is none, the handshake says
	o.mu.Lock()
	defer o.mu.Unlock()
	if pair != o.pair {
		if o.pair != nil {
			old := o.client
			o.client = o.newClient()
			old.CloseIdleConnections() // the others end by IdleConnTimeout
		}
		o.notUntil = time.Time{} // it may have been the certificate for which to wait
		o.pair = pair
	}
	return o.client
}

// Flush sends one chunk: Fluent Bit's own entries one after another, as it holds
// them, which the intake takes as they are, so that a line's bytes, metadata and
// groups arrive unchanged and the edge spends nothing on taking them apart. The
// chunk is not used any more when Flush returns, which it does within Timeout.
func (o *Output) Flush(chunk []byte, tag string) Outcome {
	if len(chunk) == 0 {
		return OK
	}
	client := o.connection()
	if o.waiting() {
		return Retry
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.cfg.Timeout)
	defer cancel()
	// A copy in any case: after a timeout the transport may still read the body.
	body, err := o.body(chunk)
	if err != nil {
		return o.retry(tag, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.cfg.Endpoint+"/api/v1/logs", bytes.NewReader(body))
	if err != nil {
		return o.retry(tag, err)
	}
	req.Header.Set("Content-Type", "application/msgpack")
	req.Header.Set("User-Agent", "muster-fluent-bit")
	if tag != "" && len(tag) < 1024 {
		req.Header.Set("X-Fluent-Tag", url.PathEscape(tag))
	}
	if o.cfg.Compress {
		req.Header.Set("Content-Encoding", "gzip")
	}
	what := contentOf(tag, chunk)
	id := o.deliveries.begin(what)
	known := false // what became of it
	defer func() { o.deliveries.end(what, id, known) }()
	req.Header.Set("X-Muster-Delivery", id)
	resp, err := client.Do(req)
	if err != nil {
		return o.retry(tag, err)
	}
	defer resp.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, 2048))
	err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(reason))
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		known = true
		o.log.Error("the intake will never take this chunk; it is dropped", "tag", tag, "bytes", len(chunk), "err", err)
		return Error
	}
	if resp.StatusCode/100 == 2 {
		known = true
		return OK
	}
	// All else may pass: an identity that is being renewed, a gateway of another
	// version behind the name. Fluent Bit's http output drops chunks at 401 and 404.
	if s, perr := strconv.Atoi(resp.Header.Get("Retry-After")); perr == nil && s > 0 {
		o.mu.Lock()
		if client == o.client { // else there is a new certificate since
			o.notUntil = time.Now().Add(min(time.Duration(s)*time.Second, time.Minute))
		}
		o.mu.Unlock()
	}
	return o.retry(tag, err)
}

// waiting tells whether the intake has asked to be left alone for a while.
func (o *Output) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Now().Before(o.notUntil)
}

func (o *Output) retry(tag string, err error) Outcome {
	o.mu.Lock()
	quiet := time.Since(o.warned) < 30*time.Second
	if !quiet {
		o.warned = time.Now()
	}
	o.mu.Unlock()
	if !quiet {
		o.log.Warn("sending logs failed; Fluent Bit will try again", "tag", tag, "err", err)
	}
	return Retry
}

func (o *Output) body(chunk []byte) ([]byte, error) {
	if !o.cfg.Compress {
		return bytes.Clone(chunk), nil
	}
	var buf bytes.Buffer
	w, _ := o.gzips.Get().(*gzip.Writer)
	if w == nil {
		w, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed)
	}
	defer o.gzips.Put(w)
	w.Reset(&buf)
	if _, err := w.Write(chunk); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Close closes idle connections.
func (o *Output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.client.CloseIdleConnections()
}

// files are the agent's key, certificate and bundle, read again when they change.
type files struct {
	dir string

	mu      sync.Mutex
	checked time.Time
	stamps  [3]time.Time
	pair    *tls.Certificate
	pool    *x509.CertPool
	err     error
}

var errNotJoined = errors.New("the site has no certificate yet; join it with `muster-edge join`")

// current returns the last good pair and bundle, and why today's can't be used.
func (f *files) current() (*tls.Certificate, *x509.CertPool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.checked) > time.Second {
		f.checked, f.err = now, f.load()
	}
	return f.pair, f.pool, f.err
}

func (f *files) load() error {
	var stamps [3]time.Time
	var content [3][]byte
	for i, name := range []string{"key.pem", "cert.pem", "bundle.pem"} {
		path := filepath.Join(f.dir, name)
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", errNotJoined, err)
		} else if err != nil {
			return err
		}
		if content[i], err = os.ReadFile(path); err != nil {
			return err
		}
		stamps[i] = st.ModTime()
	}
	if stamps == f.stamps {
		return nil
	}
	pair, err := tls.X509KeyPair(content[1], content[0])
	if err != nil {
		return fmt.Errorf("%s: %w", f.dir, err) // half replaced; the next look finds both
	}
	cas, err := identity.ParseBundle(content[2])
	if err != nil {
		return fmt.Errorf("%s: %w", f.dir, err)
	}
	f.pair, f.pool, f.stamps = &pair, identity.PoolOf(cas), stamps
	return nil
}
