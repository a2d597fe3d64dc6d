package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/testkit"
)

// dataSource is one that the samples provision.
type dataSource struct {
	UID            string            `json:"uid"`
	Type           string            `json:"type"`
	URL            string            `json:"url"`
	JSONData       map[string]any    `json:"jsonData"`
	SecureJSONData map[string]string `json:"secureJsonData"`
}

var contentOf = regexp.MustCompile(`\$__file{/etc/muster/(.+)}`)

// provisioned are the data sources of the samples by their uids, filled in as Grafana fills in its
// files: with variables of its environment, and with what is in files.
func provisioned(t *testing.T, f *fleet) map[string]dataSource {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "deploy", "samples", "grafana", "provisioning", "datasources", "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Datasources []dataSource `json:"datasources"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"MUSTER_CONSOLE": console, "MUSTER_TENANT": tenant, "MUSTER_TOKEN": f.token, "MUSTER_CORTEX": cortex, "MUSTER_REGIONAL": "https://127.0.0.1:9091"}
	fill := func(s string) string {
		if at := contentOf.FindStringSubmatch(s); at != nil {
			b, err := os.ReadFile(filepath.Join(f.dir, "control", "identities", at[1]))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		return os.Expand(s, func(name string) string {
			if env[name] == "" {
				t.Errorf("deploy/samples/grafana: %s is set nowhere", name)
			}
			return env[name]
		})
	}
	out := map[string]dataSource{}
	for _, d := range file.Datasources {
		d.URL = fill(d.URL)
		for k, v := range d.JSONData {
			if text, ok := v.(string); ok {
				d.JSONData[k] = fill(text)
			}
		}
		for k, v := range d.SecureJSONData {
			d.SecureJSONData[k] = fill(v)
		}
		out[d.UID] = d
	}
	return out
}

// client is that of Grafana's own data source for Prometheus, with the settings that it reads.
func (d dataSource) client() (*http.Client, error) {
	if d.JSONData["tlsAuth"] != true || d.JSONData["tlsAuthWithCACert"] != true {
		return nil, errors.New("no certificates are switched on")
	}
	pair, err := tls.X509KeyPair([]byte(d.SecureJSONData["tlsClientCert"]), []byte(d.SecureJSONData["tlsClientKey"]))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(d.SecureJSONData["tlsCACert"])) {
		return nil, errors.New("tlsCACert has no certificate")
	}
	return &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}}, nil
}

// ask asks as that data source does, which sends parameters as a form if httpMethod says so.
func (d dataSource) ask(path string, params url.Values, out any) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	method, at, body := http.MethodGet, d.URL+"/api/v1/"+path, ""
	if params != nil {
		method, body = fmt.Sprint(d.JSONData["httpMethod"]), params.Encode()
	}
	req, err := http.NewRequest(method, at, strings.NewReader(body))
	if err != nil {
		return err
	}
	if params != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if name, ok := d.JSONData["httpHeaderName1"].(string); ok {
		req.Header.Set(name, d.SecureJSONData["httpHeaderValue1"])
	}
	b, err := bodyOf(client, req)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// testProvisioned: the fleet answers the data sources for Prometheus that the samples provision, and
// what Grafana asks beside queries, with the certificate, header and method of their settings.
func testProvisioned(t *testing.T, f *fleet) {
	sources := provisioned(t, f)
	now := time.Now()
	span := url.Values{"query": {"up"}, "start": {fmt.Sprint(now.Add(-time.Hour).Unix())}, "end": {fmt.Sprint(now.Unix())}}
	for uid, want := range map[string]struct {
		version string // begins so
		rules   bool
	}{
		"muster-metrics":  {"", false},
		"muster-regional": {"3.", true},
	} {
		d := sources[uid]
		testkit.Eventually(t, uid+" has series", func() error {
			var r promResult
			if err := d.ask("query", url.Values{"query": {"up"}}, &r); err != nil || len(r.Data.Result) == 0 {
				return fmt.Errorf("%d series, %w", len(r.Data.Result), err)
			}
			return nil
		})
		var is struct {
			Status string
			Data   struct {
				Version   *string
				GoVersion string
			}
		}
		if err := d.ask("status/buildinfo", nil, &is); err != nil || is.Status != "success" || is.Data.Version == nil || !strings.HasPrefix(*is.Data.Version, want.version) || is.Data.GoVersion == "" {
			t.Errorf("%s: buildinfo %+v, %v", uid, is, err)
		}
		var rules struct {
			Status string
			Data   struct {
				Groups []struct {
					Name  string
					Rules []struct{ Name, Query, Health string }
				}
			}
		}
		if err := d.ask("rules", nil, &rules); err != nil || rules.Status != "success" || rules.Data.Groups == nil || (len(rules.Data.Groups) > 0) != want.rules {
			t.Errorf("%s: rules %+v, %v", uid, rules, err)
		}
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				if g.Name == "" || r.Name == "" || r.Query == "" || r.Health == "" {
					t.Errorf("%s: of the group %q the rule %+v", uid, g.Name, r)
				}
			}
		}
		var exemplars struct {
			Status string
			Data   []any
		}
		if err := d.ask("query_exemplars", span, &exemplars); err != nil || exemplars.Status != "success" || exemplars.Data == nil {
			t.Errorf("%s: exemplars %+v, %v", uid, exemplars, err)
		}
	}
}
