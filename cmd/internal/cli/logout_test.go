package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit/oidc"
)

// loginHome is where the sessions of a test are, which nobody has begun yet.
func loginHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("HOME", home)
	dir, err := loginDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The session ends at the identity provider too, and here whatever that says.
func TestLogout(t *testing.T) {
	for name, c := range map[string]struct {
		status int // 0: no revocation
		said   string
	}{"revoked": {200, ""}, "not offered": {0, "it offers no revocation"}, "unwell": {503, "503"}} {
		t.Run(name, func(t *testing.T) {
			issuer, err := oidc.New()
			if err != nil {
				t.Fatal(err)
			}
			defer issuer.Close()
			var revoked []string
			if c.status != 0 {
				issuer.OnRevoke(func(w http.ResponseWriter, r *http.Request) {
					revoked = append(revoked, r.FormValue("token")+" of "+r.FormValue("client_id"))
					w.WriteHeader(c.status)
				})
			}
			dir := loginHome(t)
			run := func() string {
				var out bytes.Buffer
				cmd := logoutCmd()
				cmd.SetErr(&out)
				cmd.SetArgs(nil)
				if err := cmd.ExecuteContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				return out.String()
			}
			if out := run(); !strings.HasPrefix(out, "logged out") { // nobody was logged in
				t.Errorf("%s", out)
			}
			b, err := json.Marshal(loginSession{IssuerURL: issuer.URL, ClientID: oidc.ClientID, CA: string(issuer.CAPEM()), RefreshToken: "r1"})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "session.json")
			if err := os.WriteFile(file, b, 0o600); err != nil {
				t.Fatal(err)
			}
			out := run()
			if _, err := os.Stat(file); err == nil {
				t.Error("the session is still there")
			}
			if got := strings.Join(revoked, ", "); c.status != 0 && got != "r1 of muster" {
				t.Errorf("revoked %q", got)
			}
			if !strings.Contains(out, "logged out") || !strings.Contains(out, c.said) || c.said == "" && strings.Contains(out, "goes on") {
				t.Errorf("%s", out)
			}
		})
	}
}

// The console's kubeconfig names the console alone: whose session that is, is found.
func TestSessionOfAConsole(t *testing.T) {
	dir := loginHome(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, age := range map[string]time.Duration{"session.json https://a.example.com": time.Hour, "session-new.json https://a.example.com": time.Minute, "session-b.json https://b.example.com/": 0} {
		file, console, _ := strings.Cut(name, " ")
		path := filepath.Join(dir, file)
		if err := (&loginSession{Console: console}).write(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "session-torn.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for console, want := range map[string]string{"https://a.example.com": "session-new.json", "https://b.example.com": "session-b.json"} {
		if got, err := sessionOf(console); err != nil || filepath.Base(got) != want {
			t.Errorf("%s: %s, %v", console, got, err)
		}
	}
	if _, err := sessionOf("https://c.example.com"); err == nil || !strings.Contains(err.Error(), "muster login --console https://c.example.com") {
		t.Error(err)
	}
}
