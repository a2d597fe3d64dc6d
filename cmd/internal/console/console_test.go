package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/oidclogin"
)

// What the config says of proxies, keys and logins reaches the console.
func TestFront(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"ca": "the CA", "secret": "s3cret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := config.Default()
	var o console.Options
	if err := front(&o, c); err != nil || o.ExternalURL != nil || o.OIDC != nil || len(o.TrustedProxies) != 0 {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	c.Console.ExternalURL, c.Console.TrustedProxies, c.Console.SessionKeyFile = "https://muster.example.com/", []string{"10.0.0.0/8"}, "/keys"
	c.OIDC.IssuerURL, c.OIDC.ClientID, c.OIDC.CAFile, c.OIDC.ClientSecretFile = "https://login.example.com", "muster", filepath.Join(dir, "ca"), filepath.Join(dir, "secret")
	if err := front(&o, c); err != nil {
		t.Fatal(err)
	}
	want := oidclogin.Options{IssuerURL: "https://login.example.com", ClientID: "muster", ClientSecret: "s3cret", CAPEM: []byte("the CA"), Scopes: c.OIDC.Scopes}
	if d := cmp.Diff(want, *o.OIDC, cmpopts.IgnoreFields(oidclogin.Options{}, "Now")); d != "" {
		t.Error(d)
	}
	if o.ExternalURL.String() != "https://muster.example.com" || fmt.Sprint(o.TrustedProxies) != "[10.0.0.0/8]" || o.SessionKeyFile != "/keys" {
		t.Errorf("%+v", o)
	}
	c.OIDC.CAFile = filepath.Join(dir, "nowhere")
	if err := front(&o, c); err == nil || !strings.Contains(err.Error(), "oidc.caFile") {
		t.Errorf("err = %v", err)
	}
}
