package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster.dev/muster/aggregator/logs"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/dashboards/console"
	"muster.dev/muster/internal/oidclogin"
)

// Of regionals on the same Elasticsearch and prefix one is asked; clusters that are
// joined are named by whoever is asked for them.
func TestLogRegionals(t *testing.T) {
	regional := func(name, prefix string, joined map[string]string, urls ...string) config.Regional {
		return config.Regional{Name: name, QueryListen: name + ":9120", Logs: config.Logs{Elasticsearch: config.Elasticsearch{URLs: urls, Prefix: prefix, RemoteClusters: joined}}}
	}
	got := logRegionals(config.Config{Regionals: []config.Regional{
		regional("one", "logs", map[string]string{"asia": "four"}, "http://x:9200", "http://y:9200"),
		regional("two", "logs", nil, "http://y:9200", "http://x:9200"),
		regional("three", "others", nil, "http://x:9200", "http://y:9200"),
		regional("four", "logs", map[string]string{"eu": "two"}, "http://z:9200"),
		regional("five", "logs", nil),
		regional("six", "logs", nil),
	}})
	want := []logs.Regional{
		{Name: "one", URL: "https://one:9120", JoinedTo: []string{"four"}, Spares: []logs.Spare{{Name: "two", URL: "https://two:9120"}}},
		{Name: "three", URL: "https://three:9120"},
		{Name: "four", URL: "https://four:9120", JoinedTo: []string{"one"}},
		{Name: "five", URL: "https://five:9120"},
		{Name: "six", URL: "https://six:9120"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

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
