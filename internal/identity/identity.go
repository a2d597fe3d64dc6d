// Package identity says who is at the other end of a certificate: a site, a
// regional, control or another role. It parses and builds the spiffe URIs, hashes keys, pins a
// certificate authority by its hash, and keeps key pairs that rotate on disk.
//
// It issues nothing (control/pki does) and knows neither Kubernetes nor gRPC: the
// agent, the gateway and control all link it, so it must stay small.
package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// DefaultTrustDomain is the authority part of the spiffe URIs of an installation
// that names no other.
const DefaultTrustDomain = "muster.local"

// Kind is what a certificate stands for.
type Kind string

// The kinds of identity that the fleet CA signs.
const (
	KindSite     Kind = "site"
	KindRegional Kind = "regional"
	KindControl  Kind = "control"
	KindRole     Kind = "role" // of Muster's other roles, and of who may ask them
)

// Identity is what a certificate says. The signature on it must have been
// verified before: Parse only reads.
type Identity struct {
	Kind        Kind
	TrustDomain string
	Site        fleet.SiteID // of a site
	Region      string       // of a site; may be empty
	Name        string       // of a regional, or of a role
}

// String returns a short form for logs: "site acme/paris-07", "regional eu-1",
// "control", "role health".
func (id Identity) String() string {
	switch id.Kind {
	case KindSite:
		return "site " + id.Site.String()
	case KindRegional:
		return "regional " + id.Name
	case KindRole:
		return "role " + id.Name
	default:
		return string(id.Kind)
	}
}

var (
	trustDomain  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	regionalName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	regionName   = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`) // a Kubernetes label value
)

// ValidateTrustDomain says in one line what is wrong with it, or returns nil.
func ValidateTrustDomain(td string) error {
	if len(td) > 200 || !trustDomain.MatchString(td) {
		return fmt.Errorf("trust domain %q: want a lower-case DNS name, such as %s", td, DefaultTrustDomain)
	}
	return nil
}

// ValidateRegional says in one line what is wrong with a regional's name, or returns nil.
func ValidateRegional(name string) error {
	if len(name) > 63 || !regionalName.MatchString(name) {
		return fmt.Errorf("regional name %q: want 1 to 63 lower-case letters, digits or '-', starting and ending with a letter or digit", name)
	}
	return nil
}

// ValidateRole says in one line what is wrong with a role's name, or returns nil. Control
// and regionals have identities of their own kinds, so that nothing is both.
func ValidateRole(name string) error {
	if len(name) > 63 || !regionalName.MatchString(name) || name == string(KindControl) || name == string(KindRegional) || name == string(KindSite) {
		return fmt.Errorf("role name %q: want 1 to 63 lower-case letters, digits or '-', and none of control, regional and site", name)
	}
	return nil
}

// ValidateRegion says in one line what is wrong with a region, or returns nil. The
// empty region is valid: the site has no region label.
func ValidateRegion(region string) error {
	if len(region) > 63 || !regionName.MatchString(region) {
		return fmt.Errorf("region %q: want at most 63 letters, digits, '-', '_' or '.', starting and ending with a letter or digit", region)
	}
	return nil
}

// SiteURI is the URI SAN of a site's certificate.
func SiteURI(trustDomain string, id fleet.SiteID) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/tenant/" + id.Tenant + "/site/" + id.Name}
}

// RegionalURI is the URI SAN of a regional's certificate.
func RegionalURI(trustDomain, name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/regional/" + name}
}

// ControlURI is the URI SAN of the fleet API server's certificate.
func ControlURI(trustDomain string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/control"}
}

// RoleURI is the URI SAN of the certificate of a role that is neither control nor a
// regional, such as health.
func RoleURI(trustDomain, name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/role/" + name}
}

// Role is the role that the identity belongs to, such as control, regional or health;
// "" of a site.
func (id Identity) Role() string {
	switch id.Kind {
	case KindSite:
		return ""
	case KindRole:
		return id.Name
	default:
		return string(id.Kind)
	}
}

// ErrNoIdentity is returned for a certificate that carries no identity of the fleet.
var ErrNoIdentity = errors.New("certificate carries no fleet identity")

// Parse reads the identity out of a certificate that has been verified.
func Parse(cert *x509.Certificate) (Identity, error) {
	if cert == nil {
		return Identity{}, fmt.Errorf("no certificate: %w", ErrNoIdentity)
	}
	// SPIFFE: exactly one URI SAN. With two, what a peer is would depend on which
	// one the reader happens to look at.
	if len(cert.URIs) != 1 {
		return Identity{}, fmt.Errorf("%d URI names, want exactly 1: %w", len(cert.URIs), ErrNoIdentity)
	}
	if cert.IsCA {
		return Identity{}, fmt.Errorf("it is a certificate authority: %w", ErrNoIdentity)
	}
	id, err := ParseURI(cert.URIs[0])
	if err != nil {
		return Identity{}, err
	}
	if id.Kind == KindSite {
		switch len(cert.Subject.Locality) {
		case 0:
		case 1:
			id.Region = cert.Subject.Locality[0]
		default:
			return Identity{}, fmt.Errorf("%s: %d localities, want at most 1: %w", id, len(cert.Subject.Locality), ErrNoIdentity)
		}
		if err := ValidateRegion(id.Region); err != nil {
			return Identity{}, fmt.Errorf("%s: %w", id, err)
		}
	}
	return id, nil
}

// ParseURI reads a spiffe URI. The region is not part of it.
func ParseURI(u *url.URL) (Identity, error) {
	bad := func(why string) (Identity, error) {
		return Identity{}, fmt.Errorf("identity %q: %s: %w", u, why, ErrNoIdentity)
	}
	switch {
	case u.Scheme != "spiffe":
		return bad("want the scheme spiffe")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return bad("want nothing but a trust domain and a path")
	case u.RawPath != "" || u.EscapedPath() != u.Path:
		return bad("escapes are not allowed")
	}
	if err := ValidateTrustDomain(u.Host); err != nil {
		return Identity{}, fmt.Errorf("identity %q: %w", u, err)
	}
	id := Identity{TrustDomain: u.Host}
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
	switch {
	case len(parts) == 4 && parts[0] == "tenant" && parts[2] == "site":
		id.Kind, id.Site = KindSite, fleet.SiteID{Tenant: parts[1], Name: parts[3]}
		if err := id.Site.Validate(); err != nil {
			return Identity{}, fmt.Errorf("identity %q: %w", u, err)
		}
	case len(parts) == 2 && parts[0] == "regional":
		id.Kind, id.Name = KindRegional, parts[1]
		if err := ValidateRegional(id.Name); err != nil {
			return Identity{}, fmt.Errorf("identity %q: %w", u, err)
		}
	case len(parts) == 2 && parts[0] == "role":
		id.Kind, id.Name = KindRole, parts[1]
		if err := ValidateRole(id.Name); err != nil {
			return Identity{}, fmt.Errorf("identity %q: %w", u, err)
		}
	case len(parts) == 1 && parts[0] == "control":
		id.Kind = KindControl
	default:
		return bad("want /tenant/T/site/S, /regional/NAME, /role/NAME or /control")
	}
	return id, nil
}

// ParseSite returns the site and the region (may be empty) of a verified site
// certificate; an error if it is anything else.
func ParseSite(cert *x509.Certificate) (fleet.SiteID, string, error) {
	id, err := Parse(cert)
	if err != nil {
		return fleet.SiteID{}, "", err
	}
	if id.Kind != KindSite {
		return fleet.SiteID{}, "", fmt.Errorf("certificate of %s: want one of a site", id)
	}
	return id.Site, id.Region, nil
}

// ParseRegional returns the name of a verified regional certificate; an error if
// it is anything else.
func ParseRegional(cert *x509.Certificate) (string, error) {
	id, err := Parse(cert)
	if err != nil {
		return "", err
	}
	if id.Kind != KindRegional {
		return "", fmt.Errorf("certificate of %s: want one of a regional", id)
	}
	return id.Name, nil
}

// KeyHash names a public key: the SHA-256, in hex, of its DER SubjectPublicKeyInfo.
func KeyHash(pub any) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return "", fmt.Errorf("hash public key: %w", err)
	}
	return hashHex(der), nil
}

// CertKeyHash is KeyHash of the key in a certificate.
func CertKeyHash(cert *x509.Certificate) string { return hashHex(cert.RawSubjectPublicKeyInfo) }

// CAHash is what --ca-hash pins: "sha256:" and CertKeyHash, as kubeadm's
// discovery-token-ca-cert-hash.
func CAHash(ca *x509.Certificate) string { return caHashPrefix + CertKeyHash(ca) }

const caHashPrefix = "sha256:"

var caHashForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ValidateCAHash says in one line what is wrong with a pin, or returns nil.
func ValidateCAHash(hash string) error {
	if !caHashForm.MatchString(hash) {
		return fmt.Errorf("CA hash %q: want sha256: and 64 hex digits, as printed by `muster token create`", hash)
	}
	return nil
}

func hashHex(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
