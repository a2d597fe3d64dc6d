package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"testing"

	"muster.dev/muster/internal/fleet"
)

func certWith(locality []string, uris ...string) *x509.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{Locality: locality}}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			panic(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestParse(t *testing.T) {
	site, region, err := ParseSite(certWith([]string{"eu-west"}, "spiffe://muster.local/tenant/acme/site/paris-07"))
	if err != nil || site != (fleet.SiteID{Tenant: "acme", Name: "paris-07"}) || region != "eu-west" {
		t.Errorf("ParseSite = %v, %q, %v", site, region, err)
	}
	if name, err := ParseRegional(certWith(nil, "spiffe://muster.local/regional/eu-1")); err != nil || name != "eu-1" {
		t.Errorf("ParseRegional = %q, %v", name, err)
	}
	if err := IsControl(certWith(nil, "spiffe://muster.local/control")); err != nil {
		t.Error(err)
	}
	for uri, want := range map[string]string{"spiffe://muster.local/control": "control", "spiffe://muster.local/regional/eu-1": "regional", "spiffe://muster.local/role/health": "health", "spiffe://muster.local/tenant/a/site/b": ""} {
		if id, err := Parse(certWith(nil, uri)); err != nil || id.Role() != want {
			t.Errorf("%s: role %q, %v, want %q", uri, id.Role(), err, want)
		}
	}
	for _, uri := range []string{"spiffe://muster.local/role/control", "spiffe://muster.local/role/regional", "spiffe://muster.local/role/", "spiffe://muster.local/role/Health", "spiffe://muster.local/role/health/x"} {
		if id, err := Parse(certWith(nil, uri)); err == nil {
			t.Errorf("%s: accepted as %v", uri, id)
		}
	}
	for name, c := range map[string]*x509.Certificate{
		"none":            certWith(nil),
		"two":             certWith(nil, "spiffe://muster.local/tenant/a/site/b", "spiffe://muster.local/tenant/a/site/c"),
		"scheme":          certWith(nil, "https://muster.local/tenant/a/site/b"),
		"user":            certWith(nil, "spiffe://u@muster.local/tenant/a/site/b"),
		"query":           certWith(nil, "spiffe://muster.local/tenant/a/site/b?x=1"),
		"fragment":        certWith(nil, "spiffe://muster.local/tenant/a/site/b#x"),
		"escaped slash":   certWith(nil, "spiffe://muster.local/tenant/a/site/b%2fc"),
		"escaped letter":  certWith(nil, "spiffe://muster.local/tenant/%61/site/b"),
		"dots":            certWith(nil, "spiffe://muster.local/tenant/../site/b"),
		"upper case":      certWith(nil, "spiffe://muster.local/tenant/A/site/b"),
		"more":            certWith(nil, "spiffe://muster.local/tenant/a/site/b/c"),
		"trailing slash":  certWith(nil, "spiffe://muster.local/tenant/a/site/b/"),
		"doubled slash":   certWith(nil, "spiffe://muster.local//tenant/a/site/b"),
		"port":            certWith(nil, "spiffe://muster.local:1/tenant/a/site/b"),
		"no domain":       certWith(nil, "spiffe:///tenant/a/site/b"),
		"opaque":          certWith(nil, "spiffe:tenant/a/site/b"),
		"region":          certWith([]string{"eu west"}, "spiffe://muster.local/tenant/a/site/b"),
		"two regions":     certWith([]string{"eu", "us"}, "spiffe://muster.local/tenant/a/site/b"),
		"regional":        certWith(nil, "spiffe://muster.local/regional/eu-1"),
		"control":         certWith(nil, "spiffe://muster.local/control"),
		"another role":    certWith(nil, "spiffe://muster.local/role/health"),
		"no regional":     certWith(nil, "spiffe://muster.local/regional/"),
		"an authority":    {IsCA: true, URIs: certWith(nil, "spiffe://muster.local/tenant/a/site/b").URIs},
		"nil certificate": nil,
	} {
		if site, _, err := ParseSite(c); err == nil {
			t.Errorf("%s: accepted as %v", name, site)
		}
	}
	if _, err := Parse(certWith(nil)); !errors.Is(err, ErrNoIdentity) {
		t.Errorf("error %v, want ErrNoIdentity", err)
	}
}

// FuzzParseURI: what is accepted is exactly what is issued.
func FuzzParseURI(f *testing.F) {
	for _, s := range []string{"spiffe://muster.local/tenant/a/site/b", "spiffe://muster.local/regional/r", "spiffe://muster.local/control", "spiffe://muster.local/role/health", "spiffe://x/tenant/%61/site/b?#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		id, err := ParseURI(u)
		if err != nil {
			return
		}
		var back *url.URL
		switch id.Kind {
		case KindSite:
			back = SiteURI(id.TrustDomain, id.Site)
		case KindRegional:
			back = RegionalURI(id.TrustDomain, id.Name)
		case KindControl:
			back = ControlURI(id.TrustDomain)
		case KindRole:
			back = RoleURI(id.TrustDomain, id.Name)
		}
		if back == nil || *back != *u {
			t.Errorf("%q parsed as %+v, which is issued as %q", s, id, back)
		}
	})
}

// FuzzParseCertificate feeds whole certificates, as a TLS peer would.
func FuzzParseCertificate(f *testing.F) {
	f.Add([]byte{0x30, 0x03})
	f.Fuzz(func(t *testing.T, der []byte) {
		if c, err := x509.ParseCertificate(der); err == nil {
			if id, err := Parse(c); err == nil && id.Kind == "" {
				t.Error("accepted without a kind")
			}
		}
	})
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cas, err := ParseBundle(b); err == nil && len(cas) == 0 {
			t.Error("accepted an empty bundle")
		}
	})
}
