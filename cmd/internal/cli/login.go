package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauth "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	kubeconfig "k8s.io/client-go/tools/clientcmd/api"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/oidclogin"
)

// freshFor is the least life that a token has when it is handed out.
const freshFor = time.Minute

// loginSession is the file that a login leaves: how to fetch tokens, and the last ones.
type loginSession struct {
	Console      string    `json:"console"`
	IssuerURL    string    `json:"issuerURL"`
	ClientID     string    `json:"clientID"`
	Scopes       []string  `json:"scopes"`
	CA           string    `json:"ca,omitempty"`
	Subject      string    `json:"subject"`
	IDToken      string    `json:"idToken"`
	RefreshToken string    `json:"refreshToken,omitempty"`
	Expires      time.Time `json:"expires"`
}

func (s *loginSession) client() (*oidclogin.Client, error) {
	return oidclogin.New(oidclogin.Options{IssuerURL: s.IssuerURL, ClientID: s.ClientID, Scopes: s.Scopes, CAPEM: []byte(s.CA)})
}

func (s *loginSession) take(t oidclogin.Tokens) {
	s.Subject, s.IDToken, s.RefreshToken, s.Expires = t.Subject, t.IDToken, t.RefreshToken, t.Expires
}

// loginDir holds sessions and the kubeconfig of `muster login`.
func loginDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("where to keep the session: %w", err)
	}
	return filepath.Join(dir, "muster"), nil
}

// loginKubeconfig is the kubeconfig that `muster login` writes, "" if there is none.
func loginKubeconfig() string {
	dir, err := loginDir()
	if err != nil {
		return ""
	}
	path := filepath.Join(dir, "kubeconfig")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// defaultContext is what a login calls the context of a kubeconfig.
const defaultContext = "muster"

// login is one run of `muster login`.
type login struct {
	g                     *Globals
	device, noBrowser     bool
	server, serverCA      string
	out                   io.Writer
	open                  func(url string) error // shows a page to the user
	program               string                 // this one, for the kubeconfig
	sessionFile, kubeFile string
	name                  string // of the context
}

func loginCmd(g *Globals) *cobra.Command {
	l := &login{g: g, open: openBrowser}
	cmd := &cobra.Command{
		Use: "login", Short: "Log in with the identity provider, for muster, kubectl and Helm", Args: cobra.NoArgs,
		Long: `Log in with the identity provider that the console names, and write a kubeconfig
whose user fetches fresh tokens by itself. What you may do is up to the control
plane, as for everybody.`,
		Example: "  muster login --console https://muster.example.com\n  muster login --console https://muster.example.com --device\n  muster login --console https://muster.example.com --context prod --tenant acme",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := loginDir()
			if err != nil {
				return err
			}
			l.name = cmp.Or(g.Context, defaultContext)
			if l.name != filepath.Base(l.name) || l.name[0] == '.' {
				return fmt.Errorf("--context %q: want a name without a slash, such as prod", l.name)
			}
			l.out, l.sessionFile, l.kubeFile = cmd.ErrOrStderr(), filepath.Join(dir, "session.json"), filepath.Join(dir, "kubeconfig")
			if g.Context != "" {
				l.sessionFile = filepath.Join(dir, "session-"+l.name+".json")
			}
			if g.Kubeconfig != "" {
				l.kubeFile = g.Kubeconfig
			}
			if l.program, err = os.Executable(); err != nil {
				return err
			}
			return l.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&g.Kubeconfig, "kubeconfig", "", "kubeconfig to add the user to (default: one of its own, which muster finds by itself)")
	cmd.Flags().StringVar(&g.Context, "context", "", "`NAME` of the context that the kubeconfig gets, so that there can be several fleets or users in it (default: muster)")
	cmd.Flags().StringVarP(&g.Tenant, "tenant", "T", "", "tenant of the context: what is asked without --tenant")
	cmd.Flags().BoolVar(&l.device, "device", false, "show a code to type in on another device, for machines without a browser")
	cmd.Flags().BoolVar(&l.noBrowser, "no-browser", false, "only print the address of the login page")
	cmd.Flags().StringVar(&l.server, "server", "", "URL of the Kubernetes API (default: what the console says)")
	cmd.Flags().StringVar(&l.serverCA, "certificate-authority", "", "CA of --server, a PEM `FILE`")
	g.addConsole(cmd)
	return cmd
}

func logoutCmd() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Forget the sessions of `muster login`", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, files, err := sessionFiles()
			if err != nil {
				return err
			}
			for _, file := range files {
				revokeSession(cmd, file)
			}
			for _, file := range append(files, filepath.Join(dir, "kubeconfig")) {
				if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "logged out; a kubeconfig that you named with --kubeconfig is left as it is")
			return nil
		},
	}
}

// revokeSession has the identity provider forget the session of the file, if it offers
// that; what fails is said, and hinders nobody from logging out.
func revokeSession(cmd *cobra.Command, path string) {
	lock, err := disk.WaitLockFile(cmd.Context(), path+".lock") // a kubectl may be refreshing it
	if err != nil {
		return // there is no session, or nobody waits any more
	}
	defer lock.Close()
	s, err := readSession(path)
	if err != nil || s.RefreshToken == "" {
		return
	}
	client, err := s.client()
	if err == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), 10*time.Second)
		defer cancel()
		var offered bool
		if offered, err = client.Revoke(ctx, s.RefreshToken); err == nil && !offered {
			err = errors.New("it offers no revocation")
		}
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "the session is forgotten here, but goes on at the identity provider until it expires: %v\n", err)
	}
}

func (l *login) run(ctx context.Context) error {
	base, err := l.g.consoleURL()
	if err != nil {
		return err
	}
	console := &api{base: base, http: &http.Client{Timeout: 30 * time.Second}}
	var ways struct {
		OIDC *struct {
			IssuerURL string   `json:"issuerURL"`
			ClientID  string   `json:"clientID"`
			Scopes    []string `json:"scopes"`
			CA        string   `json:"ca"`
		} `json:"oidc"`
	}
	if err := console.get(ctx, "/api/v1/login", nil, &ways); err != nil {
		return err
	}
	if ways.OIDC == nil {
		return fmt.Errorf("the console at %s knows no identity provider: use a kubeconfig with a token, or set oidc.issuerURL there", base)
	}
	s := &loginSession{Console: base, IssuerURL: ways.OIDC.IssuerURL, ClientID: ways.OIDC.ClientID, Scopes: ways.OIDC.Scopes, CA: ways.OIDC.CA}
	client, err := s.client()
	if err != nil {
		return err
	}
	fetch := l.byBrowser
	if l.device {
		fetch = l.byDevice
	}
	tokens, err := fetch(ctx, client)
	if err != nil {
		return err
	}
	s.take(tokens)
	return l.keep(ctx, console, s)
}

// keep writes the session and the kubeconfig, once the control plane has accepted it.
func (l *login) keep(ctx context.Context, console *api, s *loginSession) error {
	console.http.Transport = bearer(s.IDToken)
	var me struct {
		User    string   `json:"user"`
		Tenants []string `json:"tenants"`
	}
	if err := console.get(ctx, "/api/v1/session", nil, &me); err != nil {
		return fmt.Errorf("the control plane does not accept the login: %w", err)
	}
	cluster := kubeconfig.NewCluster()
	cluster.Server, cluster.CertificateAuthority = l.server, l.serverCA
	if l.server == "" {
		var k struct{ Server, CA string }
		if err := console.get(ctx, "/api/v1/kubernetes", nil, &k); err != nil {
			return err
		}
		if onLoopback(k.Server) && !onLoopback(s.Console) {
			return fmt.Errorf("the console reaches the Kubernetes API at %s, which is not from here; name its address with --server and --certificate-authority", k.Server)
		}
		cluster.Server, cluster.CertificateAuthorityData = k.Server, []byte(k.CA)
	}
	if err := s.write(l.sessionFile); err != nil {
		return err
	}
	if err := addContext(l.kubeFile, cmp.Or(l.name, defaultContext), contextExtra{Console: s.Console, Tenant: l.g.Tenant}, cluster, &kubeconfig.ExecConfig{
		APIVersion: clientauth.SchemeGroupVersion.String(), Command: l.program, Args: []string{"credential", l.sessionFile},
		InteractiveMode: kubeconfig.NeverExecInteractiveMode, InstallHint: "muster is not where it was when you ran `muster login`; run that again",
	}); err != nil {
		return err
	}
	fmt.Fprintf(l.out, "Logged in as %s", me.User)
	if len(me.Tenants) > 0 {
		fmt.Fprintf(l.out, ", with access to %s", strings.Join(me.Tenants, ", "))
	}
	fmt.Fprintf(l.out, ".\nFor kubectl and Helm: export KUBECONFIG=%s\n", l.kubeFile)
	if used := l.g.kubeconfigPath(); used != l.kubeFile {
		fmt.Fprintf(l.out, "muster goes on using %s until you set that\n", used)
	}
	return nil
}

func onLoopback(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

func writePrivate(path string, b []byte) error {
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

func readSession(path string) (*loginSession, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s loginSession
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &s, nil
}

// sessionFiles are the files of all sessions, and the folder that they are in.
func sessionFiles() (dir string, files []string, err error) {
	if dir, err = loginDir(); err != nil {
		return "", nil, err
	}
	files, err = filepath.Glob(filepath.Join(dir, "session*.json"))
	return dir, files, err
}

func (s *loginSession) write(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writePrivate(path, append(b, '\n'))
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// byBrowser waits on a loopback address for the browser to come back (RFC 8252).
func (l *login) byBrowser(ctx context.Context, client *oidclogin.Client) (oidclogin.Tokens, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return oidclogin.Tokens{}, err
	}
	listeners := []net.Listener{ln}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	if six, err := net.Listen("tcp", "[::1]:"+port); err == nil { // what localhost may be too
		listeners = append(listeners, six)
	}
	// By name and not by address: providers compare it with what is registered, and only
	// the port may differ.
	redirect := "http://localhost:" + port + "/callback"
	attempt := oidclogin.NewAttempt()
	target, err := client.AuthURL(ctx, redirect, attempt)
	if err != nil {
		return oidclogin.Tokens{}, err
	}
	type answer struct {
		tokens oidclogin.Tokens
		err    error
	}
	answers := make(chan answer, 1)
	srv := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Method != http.MethodGet || r.URL.Path != "/callback" || !attempt.Answers(q.Get("state")) {
			http.Error(w, "This is not the answer to the login that muster waits for.", http.StatusBadRequest)
			return
		}
		var a answer
		if why := q.Get("error"); why != "" {
			a.err = fmt.Errorf("the identity provider refused: %s %s", printable(why), printable(q.Get("error_description")))
		} else {
			a.tokens, a.err = client.Exchange(r.Context(), redirect, q.Get("code"), attempt)
		}
		if a.err != nil {
			http.Error(w, "The login failed. The terminal says why.", http.StatusBadRequest)
		} else {
			fmt.Fprintln(w, "You are logged in. Go back to the terminal; this page can be closed.")
		}
		select {
		case answers <- a:
		default: // the first one counts
		}
	})}
	for _, ln := range listeners {
		go func() { _ = srv.Serve(ln) }()
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = srv.Shutdown(stop) // lets the browser have its page
	}()
	fmt.Fprintf(l.out, "Log in with your browser:\n\n  %s\n\n", target)
	if !l.noBrowser {
		if err := l.open(target); err != nil {
			fmt.Fprintf(l.out, "No browser could be opened here (%v). Open the address by hand, or use --device.\n", err)
		}
	}
	select {
	case <-ctx.Done():
		return oidclogin.Tokens{}, ctx.Err()
	case a := <-answers:
		return a.tokens, a.err
	}
}

func (l *login) byDevice(ctx context.Context, client *oidclogin.Client) (oidclogin.Tokens, error) {
	d, err := client.Device(ctx)
	if err != nil {
		return oidclogin.Tokens{}, err
	}
	fmt.Fprintf(l.out, "On any device, open\n\n  %s\n\nand enter the code  %s\n\n", printable(d.VerificationURI), printable(d.UserCode))
	if d.VerificationURIComplete != "" {
		fmt.Fprintf(l.out, "or open both at once:\n\n  %s\n\n", printable(d.VerificationURIComplete))
	}
	return client.AwaitDevice(ctx, d)
}

func openBrowser(target string) error {
	switch runtime.GOOS {
	case "darwin":
		return exec.Command("open", target).Start()
	case "windows":
		return exec.Command("rundll32", "url.dll,FileProtocolHandler", target).Start()
	}
	return exec.Command("xdg-open", target).Start()
}

// credentialCmd is what the kubeconfig of `muster login` runs: an exec credential plugin
// of client-go.
func credentialCmd() *cobra.Command {
	var console string
	cmd := &cobra.Command{
		Use: "credential [SESSION]", Short: "Print a fresh token of `muster login` for kubectl", Args: cobra.MaximumNArgs(1), Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var path string
			if len(args) > 0 {
				path = args[0]
			} else if path, err = sessionOf(console); err != nil {
				return err
			}
			s, err := freshSession(cmd.Context(), path, time.Now())
			if err != nil {
				return err
			}
			expires := metav1.NewTime(s.Expires.Add(-freshFor))
			return json.NewEncoder(cmd.OutOrStdout()).Encode(clientauth.ExecCredential{
				TypeMeta: metav1.TypeMeta{APIVersion: clientauth.SchemeGroupVersion.String(), Kind: "ExecCredential"},
				Status:   &clientauth.ExecCredentialStatus{Token: s.IDToken, ExpirationTimestamp: &expires},
			})
		},
	}
	cmd.Flags().StringVar(&console, "console", "", "whose session, if no file is named")
	return cmd
}

// sessionOf is the file of the newest session with a console.
func sessionOf(console string) (string, error) {
	_, files, err := sessionFiles()
	if err != nil {
		return "", err
	}
	var newest string
	var at time.Time
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			continue // it was logged out meanwhile
		}
		s, err := readSession(f)
		if err != nil {
			continue // another one serves, or there is none
		}
		if strings.TrimSuffix(s.Console, "/") == strings.TrimSuffix(console, "/") && info.ModTime().After(at) {
			newest, at = f, info.ModTime()
		}
	}
	if newest == "" {
		return "", fmt.Errorf("there is no session with %s; run `muster login --console %s`", console, console)
	}
	return newest, nil
}

// freshSession returns the session of the file with a token that is good for a while. A
// lock keeps several kubectl from using one refresh token at the same time.
func freshSession(ctx context.Context, path string, now time.Time) (*loginSession, error) {
	lock, err := disk.WaitLockFile(ctx, path+".lock")
	if err != nil {
		return nil, notLoggedIn(err)
	}
	defer lock.Close()
	s, err := readSession(path)
	if err != nil {
		return nil, notLoggedIn(err)
	}
	if s.Expires.Sub(now) > 2*freshFor {
		return s, nil
	}
	again := fmt.Sprintf("run `muster login --console %s`", s.Console)
	if s.RefreshToken == "" {
		return nil, fmt.Errorf("the session has ended; %s", again)
	}
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tokens, err := client.Refresh(ctx, s.RefreshToken, s.Subject)
	switch {
	case errors.Is(err, oidclogin.ErrRefused):
		return nil, fmt.Errorf("the session has ended (%w); %s", err, again)
	case err != nil && now.Before(s.Expires):
		return s, nil // the provider is away; the token is good for this once
	case err != nil:
		return nil, err
	}
	s.take(tokens)
	return s, s.write(path)
}

func notLoggedIn(err error) error {
	return fmt.Errorf("there is no session (%w); run `muster login`", err)
}
