// Package fleet holds the words that every tier of Muster shares: sites and
// tenants, scores and colours, the names of labels, metrics and namespaces.
//
// It is pure: no I/O, no goroutines, no Kubernetes or Prometheus types, so that
// the edge binary and the pure health model can both use it. Every tier imports
// it; it imports none of them.
package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// SiteID names one site of the fleet. A site's name is unique within its tenant.
type SiteID struct {
	Tenant string
	Name   string
}

// String returns "tenant/name", the form used in logs, errors and URLs.
func (id SiteID) String() string { return id.Tenant + "/" + id.Name }

// ParseSiteID is the inverse of SiteID.String.
func ParseSiteID(s string) (SiteID, error) {
	tenant, name, ok := strings.Cut(s, "/")
	if !ok {
		return SiteID{}, fmt.Errorf("site %q: want TENANT/NAME", s)
	}
	id := SiteID{Tenant: tenant, Name: name}
	return id, id.Validate()
}

// A site's name becomes a label value, a file name, a DNS label and part of a
// URI, so it is held to the strictest of them: RFC 1123, at most 63 bytes. A
// tenant's name is also the prefix of its namespaces "<tenant>-<n>", and must
// leave room for the rest.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

const maxTenantName = 30

// Validate says in one line what is wrong with the id, or returns nil.
func (id SiteID) Validate() error {
	if err := ValidateTenant(id.Tenant); err != nil {
		return err
	}
	if len(id.Name) > 63 || !dnsLabel.MatchString(id.Name) {
		return fmt.Errorf("site name %q: want 1 to 63 lower-case letters, digits or '-', starting and ending with a letter or digit", id.Name)
	}
	return nil
}

// ValidateTenant says in one line what is wrong with a tenant's name, or returns nil.
func ValidateTenant(name string) error {
	if len(name) > maxTenantName || !dnsLabel.MatchString(name) {
		return fmt.Errorf("tenant name %q: want 1 to %d lower-case letters, digits or '-', starting and ending with a letter or digit", name, maxTenantName)
	}
	return nil
}

// SystemNamespace is the Kubernetes namespace that holds a tenant's sites,
// tokens and policies.
func SystemNamespace(tenant string) string { return tenant + "-system" }

// SharedNamespace is the Kubernetes namespace of the virtual sites that all of a
// tenant's namespaces may name.
func SharedNamespace(tenant string) string { return tenant + "-shared" }

// TenantOfSystemNamespace returns the tenant whose system namespace this is.
func TenantOfSystemNamespace(ns string) (string, bool) {
	t, ok := strings.CutSuffix(ns, "-system")
	return t, ok && t != ""
}

// Kubernetes labels and annotations. Region is a plain user label, as in the
// reference system; the discovered ones carry the muster.dev/system- prefix and
// can't be set by users.
const (
	LabelTenant       = "muster.dev/tenant"
	LabelRegion       = "region"
	SystemLabelPrefix = "muster.dev/system-"
)

// Series labels that the regional gateway stamps over whatever a site sent.
const (
	SeriesTenant = "tenant"
	SeriesSite   = "site"
	SeriesRegion = "region"
)

// StampedLabels are the labels that a collection policy can't drop and a site
// can't choose.
var StampedLabels = []string{SeriesTenant, SeriesSite, SeriesRegion}

// PlatformTenant is the tenant of Muster's own telemetry: the regionals' "local"
// engines and the roles' metrics.
const PlatformTenant = "muster"

// Names of the series that Muster itself writes.
const (
	MetricSiteScore        = "muster_site_health_score"           // 0..100; labels tenant, site, region
	MetricDimensionScore   = "muster_site_health_dimension_score" // 0..100; plus dimension
	MetricSiteColour       = "muster_site_health_colour"          // 0 grey, 1 green, 2 orange, 3 red
	MetricVirtualSite      = "muster_virtual_site_member"         // 1; labels tenant, virtual_site, site
	MetricVirtualSiteScore = "muster_virtual_site_health_score"   // 0..100; plus stat: mean, p10, worst

	MetricSiteConnected = "muster_site_connected"                   // 1 while a site's stream is open, else 0; written by the gateway
	MetricSiteLastPush  = "muster_site_last_push_timestamp_seconds" // when the gateway last acknowledged samples of the site
	MetricSitePace      = "muster_site_scrape_pace_seconds"         // Pace of a site that is scraped less than once a minute; written by the gateway
)

// Roles that a tenant's users have. TenantGroup names the group that has each.
const (
	TenantAdmin  = "admin"
	TenantEditor = "editor"
	TenantViewer = "viewer"
)

// TenantGroup is the Kubernetes group whose members have a role, such as
// TenantAdmin, in a tenant. A group that an identity provider vouches for has the
// provider's prefix in front of it.
func TenantGroup(tenant, role string) string { return "muster:tenant:" + tenant + ":" + role }

// TenantOfGroup returns the tenant in which members of the group have a role,
// whatever prefix an identity provider's groups have.
func TenantOfGroup(group string) (string, bool) {
	_, rest, ok := strings.Cut(":"+group, ":muster:tenant:")
	if !ok {
		return "", false
	}
	tenant, role, _ := strings.Cut(rest, ":")
	return tenant, ValidateTenant(tenant) == nil && (role == TenantAdmin || role == TenantEditor || role == TenantViewer)
}

// ValidateIDPrefix checks the prefix of the users or groups of an identity provider:
// without one, the provider's system:masters would be Kubernetes' own, and its
// muster:system one of Muster's roles.
func ValidateIDPrefix(prefix string) error {
	if prefix == "" || prefix == "-" {
		return errors.New("must not be empty: without a prefix the provider could name a user or group of Kubernetes or Muster itself; want such as oidc:")
	}
	for _, own := range []string{"system:", "muster:"} {
		if strings.HasPrefix(prefix, own) || strings.HasPrefix(own, prefix) {
			return fmt.Errorf("%q: with it the provider could name a user or group that begins with %s; want such as oidc:", prefix, own)
		}
	}
	return nil
}
