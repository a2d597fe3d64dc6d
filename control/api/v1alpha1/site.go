package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/fleet"
)

// Tenant is the hard wall between customers: it owns namespaces, users, sites and
// data. Its namespaces are made by Muster and named <tenant>-<name>.
//
// Deleting it deletes its namespaces with everything in them, its sites included, whose
// certificates are refused from then on; it is gone when they are. Its metrics and logs
// stay where they are stored until they are too old.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=tn
// +kubebuilder:printcolumn:name="Display",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Within Quotas",type=string,JSONPath=`.status.conditions[?(@.type=="WithinQuotas")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?$')",message="metadata.name: a tenant is at most 30 lower-case letters, digits or '-', because its namespaces are named <tenant>-<name>"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['kube', 'default', 'muster'])",message="metadata.name: this name is reserved; choose another"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec,omitempty"`
	Status TenantStatus `json:"status,omitempty"`
}

// FinalizerTenant keeps a Tenant that is being deleted until its namespaces are gone.
const FinalizerTenant = "muster.dev/namespaces"

// TenantSpec says what a tenant may have.
type TenantSpec struct {
	// DisplayName is what people call the tenant.
	// +kubebuilder:validation:MaxLength=100
	// +optional
	DisplayName string `json:"displayName,omitempty"`
	// Namespaces are made as <tenant>-<name>, besides "system" and "shared",
	// which every tenant has.
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// Quotas bound what the tenant may have, send and store. What is not set, or 0, is as
	// the installation has it in control.quotas: as it ships 10,000 sites, 10,000,000
	// series, 1 TB of logs a day and 20,000 objects of 256 MiB; -1 is no limit.
	// +optional
	Quotas TenantQuotas `json:"quotas,omitempty"`
	// PodSecurity is the Pod Security Standard that every pod of the tenant must meet.
	// Workloads that don't are refused, here and on the sites.
	// +kubebuilder:default=Baseline
	// +optional
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`
	// SiteQuotas bound each of the tenant's namespaces on each site; absent: no bounds, but
	// of node ports.
	// +optional
	SiteQuotas *SiteQuotas `json:"siteQuotas,omitempty"`
}

// TenantQuotas bound a tenant. What is used of each is in status.usage. Who has more
// than a limit that came later keeps it; only more is refused.
type TenantQuotas struct {
	// Sites is the largest number of sites, decommissioned ones not counted.
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites,omitempty"`
	// Series is the largest number of active series over all sites, those that
	// recording rules make included. Each regional enforces a share of it, by the
	// number of sites that it answers for.
	// +kubebuilder:validation:Minimum=-1
	// +optional
	Series int64 `json:"series,omitempty"`
	// LogBytesPerDay is the largest volume of uncompressed log lines in a day of UTC,
	// shared out in the same way.
	// +kubebuilder:validation:Minimum=-1
	// +optional
	LogBytesPerDay int64 `json:"logBytesPerDay,omitempty"`
	// Objects is the largest number of objects of any kind in the tenant's
	// namespaces, sites not counted.
	// +kubebuilder:validation:Minimum=-1
	// +optional
	Objects int64 `json:"objects,omitempty"`
	// ObjectBytes is the largest size of all objects in the tenant's namespaces
	// together, sites included, as etcd stores them.
	// +kubebuilder:validation:Minimum=-1
	// +optional
	ObjectBytes int64 `json:"objectBytes,omitempty"`
}

// Names of the quotas, in status.usage, in refusals and in the CLI.
const (
	QuotaSites          = "sites"
	QuotaSeries         = "series"
	QuotaLogBytesPerDay = "logBytesPerDay"
	QuotaObjects        = "objects"
	QuotaObjectBytes    = "objectBytes"
)

// Quotas are the names of all quotas, in the order in which people are shown them.
var Quotas = []string{QuotaSites, QuotaSeries, QuotaLogBytesPerDay, QuotaObjects, QuotaObjectBytes}

// CauseQuotaExceeded is the cause in a refusal of the API server for want of room in a
// tenant's quotas; the cause's field is the quota's name.
const CauseQuotaExceeded metav1.CauseType = "QuotaExceeded"

// ConditionWithinQuotas of a tenant is False while a quota is used up.
const ConditionWithinQuotas = "WithinQuotas"

// Limit returns a quota by its name, 0 if it is not set.
func (q TenantQuotas) Limit(name string) int64 {
	switch name {
	case QuotaSites:
		return int64(q.Sites)
	case QuotaSeries:
		return q.Series
	case QuotaLogBytesPerDay:
		return q.LogBytesPerDay
	case QuotaObjects:
		return q.Objects
	case QuotaObjectBytes:
		return q.ObjectBytes
	}
	return 0
}

// InEffect returns the limits that hold, with what is not set taken from the defaults;
// in them 0 is no limit.
func (q TenantQuotas) InEffect(defaults TenantQuotas) TenantQuotas {
	return TenantQuotas{
		Sites: inEffect(q.Sites, defaults.Sites), Series: inEffect(q.Series, defaults.Series), LogBytesPerDay: inEffect(q.LogBytesPerDay, defaults.LogBytesPerDay),
		Objects: inEffect(q.Objects, defaults.Objects), ObjectBytes: inEffect(q.ObjectBytes, defaults.ObjectBytes),
	}
}

func inEffect[N int32 | int64](own, standard N) N { return max(0, cmp.Or(own, standard)) }

// TenantStatus is what Muster observed.
type TenantStatus struct {
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// Namespaces that the tenant has, as its users type them: without the tenant's
	// name in front.
	// +listType=set
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
	// Usage of each quota. It is written when a figure moves by a twentieth of its
	// quota or reaches it, not with every sample.
	// +listType=map
	// +listMapKey=quota
	// +optional
	Usage []QuotaUsage `json:"usage,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// QuotaUsage is how much of one quota is used.
type QuotaUsage struct {
	// Quota is its name in spec.quotas.
	Quota string `json:"quota"`
	// Used of it; of logBytesPerDay, since midnight UTC.
	Used int64 `json:"used"`
	// Limit in effect; 0: none.
	// +optional
	Limit int64 `json:"limit,omitempty"`
}

// +kubebuilder:object:root=true

// TenantList is a list of tenants.
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}

// Site is one edge site: a Kubernetes cluster, or a machine that will be one. It
// lives in <tenant>-system and is made by registration.
//
// Its status holds transitions (phase, colour, versions) and a score that is
// refreshed when the colour changes or the score moves by 5 points or more; the
// live figures are in the health API and in Cortex.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Region",type=string,JSONPath=`.metadata.labels.region`
// +kubebuilder:printcolumn:name="Score",type=integer,JSONPath=`.status.health.score`
// +kubebuilder:printcolumn:name="Colour",type=string,JSONPath=`.status.health.colour`
// +kubebuilder:printcolumn:name="Maintenance",type=string,JSONPath=`.status.maintenance.reason`
// +kubebuilder:printcolumn:name="Last Seen",type=date,JSONPath=`.status.lastSeen`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.versions.agent`,priority=1
// +kubebuilder:printcolumn:name="OS",type=string,JSONPath=`.status.versions.os`,priority=1
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.versions.kubernetes`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.health.reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.publicKey) || !has(self.spec) || !has(self.spec.publicKey) || self.spec.publicKey == oldSelf.spec.publicKey || (has(self.status) && has(self.status.reset) && has(self.status.reset.nextKey) && self.spec.publicKey == self.status.reset.nextKey)",message="spec.publicKey: a site's key can't be exchanged, but for the one that it vouched for before a factory reset; delete the Site and register the machine anew"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: a site is at most 63 lower-case letters, digits or '-': its name becomes a label value and part of its certificate"
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SiteSpec   `json:"spec,omitempty"`
	Status SiteStatus `json:"status,omitempty"`
}

// SiteSpec is what people decide about a site.
type SiteSpec struct {
	// Approved lets the site have a certificate. Set by a person, or by the
	// registration token's policy.
	// +optional
	Approved bool `json:"approved,omitempty"`
	// Decommissioned refuses the site for good: its stream is closed and its
	// certificate no longer accepted. It can't be undone.
	// +kubebuilder:validation:XValidation:rule="!oldSelf || self",message="a decommissioned site stays so; delete the Site and register the machine anew"
	// +optional
	Decommissioned bool `json:"decommissioned,omitempty"`
	// Place is where the site stands.
	// +optional
	Place *Place `json:"place,omitempty"`
	// Maintenance leaves the site out of the health of its virtual sites, and
	// silences its alerts, from now on.
	// +optional
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	// MaintenanceWindows do the same at planned times, once or again and again.
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	// +optional
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
	// PublicKey is the SHA-256, in hex, of the DER SubjectPublicKeyInfo that
	// registered: the only key that this site's certificates are issued for.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	PublicKey string `json:"publicKey,omitempty"`
	// Token is the name of the RegistrationToken that it came with.
	// +optional
	Token string `json:"token,omitempty"`
	// Software is the version that the site shall run, by component: os, agent, platform,
	// whatever SoftwarePolicies say.
	// Each is the spec.version of a SoftwareVersion of that component. A component that is
	// not named stays as it is.
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(c, c in ['os', 'agent', 'platform'])",message="spec.software: want versions by component: os, agent, platform"
	// +optional
	Software map[SoftwareComponent]string `json:"software,omitempty"`
	// Reset asks the site to go back to how it was before it registered, and to come back
	// as the same site with a new key. Setting it takes the verb reset on sites, and the site's
	// own operator must have switched it on. How far it is says status.reset. Removing it
	// takes it back, as long as the site has not begun.
	// +optional
	Reset *SiteReset `json:"reset,omitempty"`
}

// Place is a position on earth, and what people call it.
type Place struct {
	// Latitude in degrees north, WGS 84, e.g. "48.8566".
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,2}(\.[0-9]{1,7})?$`
	Latitude string `json:"latitude"`
	// Longitude in degrees east, WGS 84, e.g. "2.3522".
	// +kubebuilder:validation:Pattern=`^-?[0-9]{1,3}(\.[0-9]{1,7})?$`
	Longitude string `json:"longitude"`
	// Address is free text.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Address string `json:"address,omitempty"`
}

// Maintenance is a stretch of planned work.
type Maintenance struct {
	// Reason is shown beside the site.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Reason string `json:"reason"`
	// Until ends it; absent: until it is removed.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// MaintenanceWindow is planned work: once, at start, or again and again, by schedule.
//
// +kubebuilder:validation:XValidation:rule="has(self.start) != has(self.schedule)",message="want either start, for once, or schedule, for again and again"
type MaintenanceWindow struct {
	// Name, unique in the object.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Reason is shown beside the site, and in the silence.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Reason string `json:"reason"`
	// Start of a window that comes once.
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// Schedule of a window that comes again, in cron's five fields, e.g. "0 2 * * SUN".
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// TimeZone of the schedule, such as Europe/Berlin; default UTC. When the clocks
	// change, a window whose hour is left out comes an hour later, and one whose hour
	// comes twice opens the first time.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// Duration of the window.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="duration: want 1m to 168h"
	Duration metav1.Duration `json:"duration"`
}

// SiteStatus is what Muster observed.
type SiteStatus struct {
	// +kubebuilder:validation:Enum=Pending;Approved;Online;Offline;Decommissioned
	// +optional
	Phase fleet.Phase `json:"phase,omitempty"`
	// LastSeen is refreshed at transitions and at most every 5 minutes.
	// +optional
	LastSeen *metav1.Time `json:"lastSeen,omitempty"`
	// Regional is the one that the site is connected to.
	// +optional
	Regional string `json:"regional,omitempty"`
	// Versions as the agent reports them: agent, os, kernel, kubernetes, …
	// +kubebuilder:validation:MaxProperties=20
	// +optional
	Versions map[string]string `json:"versions,omitempty"`
	// PolicyHash names the collection policy in effect on the site.
	// +optional
	PolicyHash string `json:"policyHash,omitempty"`
	// AppliedRevision is the desired state that the site holds, as of lastSeen.
	// +optional
	AppliedRevision string `json:"appliedRevision,omitempty"`
	// CertificateNotAfter is the end of the newest certificate.
	// +optional
	CertificateNotAfter *metav1.Time `json:"certificateNotAfter,omitempty"`
	// Software is how far the site is with what spec.software wants, by component. A
	// download's percent is written in steps of ten.
	// +listType=map
	// +listMapKey=component
	// +kubebuilder:validation:MaxItems=3
	// +optional
	Software []SiteSoftware `json:"software,omitempty"`
	// Reset is how far the factory reset is that spec.reset asks for, or that was asked for
	// last.
	// +optional
	Reset *SiteResetStatus `json:"reset,omitempty"`
	// +optional
	Health *SiteHealth `json:"health,omitempty"`
	// Maintenance is going on: by hand, in a window of the site or in one of a virtual
	// site that it belongs to. Absent: none is.
	// +optional
	Maintenance *SiteMaintenance `json:"maintenance,omitempty"`
	// Conditions come from the site and from Muster. Ready is Muster's: True while the
	// site is connected, else its reason is the phase.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConditionReady of a Site is True while it is connected; of a Tenant, while all of its
// namespaces are there.
const ConditionReady = "Ready"

// SiteMaintenance is planned work that is going on.
type SiteMaintenance struct {
	// Reason as whoever planned it gave it.
	Reason string `json:"reason"`
	// Until ends it; absent: until it is removed.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// Window that is open; absent: it was begun by hand.
	// +optional
	Window string `json:"window,omitempty"`
}

// Text is the reason, and the window if it is one; empty if there is no maintenance.
func (m *SiteMaintenance) Text() string {
	switch {
	case m == nil:
		return ""
	case m.Window != "":
		return m.Reason + " (window " + m.Window + ")"
	}
	return m.Reason
}

// MaintenanceAt is the planned work that goes on at a site, as far as the object tells:
// a window from its status, because it may be a virtual site's that the reader can't
// see, else what was begun by hand; nil if none does. For who has the inventory,
// that is the one to ask.
func (s *Site) MaintenanceAt(now time.Time) *SiteMaintenance {
	if m := s.Status.Maintenance; m != nil && m.Window != "" && m.Until != nil && now.Before(m.Until.Time) {
		return m
	}
	if m := s.Spec.Maintenance; m != nil && (m.Until == nil || now.Before(m.Until.Time)) {
		return &SiteMaintenance{Reason: m.Reason, Until: m.Until}
	}
	return nil
}

// SiteHealth is the last transition of the site's health.
type SiteHealth struct {
	// Score from 0 to 100; absent when unknown.
	// +optional
	Score *int32 `json:"score,omitempty"`
	// +kubebuilder:validation:Enum=green;orange;red;grey
	Colour fleet.Colour `json:"colour"`
	// Reason is the first of the ranked reasons.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Since is when the colour changed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// +kubebuilder:object:root=true

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

// VirtualSite is a set of sites, chosen by their labels. New sites join by their
// labels alone. In <tenant>-shared it may be named from all of the tenant's
// namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vs
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.status.sites`
// +kubebuilder:printcolumn:name="Green",type=integer,JSONPath=`.status.green`
// +kubebuilder:printcolumn:name="Orange",type=integer,JSONPath=`.status.orange`
// +kubebuilder:printcolumn:name="Red",type=integer,JSONPath=`.status.red`
// +kubebuilder:printcolumn:name="Unknown",type=integer,JSONPath=`.status.grey`
// +kubebuilder:printcolumn:name="Maintenance",type=integer,JSONPath=`.status.maintenance`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VirtualSite struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualSiteSpec   `json:"spec,omitempty"`
	Status VirtualSiteStatus `json:"status,omitempty"`
}

// VirtualSiteSpec chooses sites.
type VirtualSiteSpec struct {
	// SiteSelector over the labels of the tenant's sites, in full Kubernetes set
	// syntax. The empty selector takes all of them.
	SiteSelector metav1.LabelSelector `json:"siteSelector"`
	// Description for people.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	Description string `json:"description,omitempty"`
	// MaintenanceWindows of all members.
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	// +optional
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
}

// VirtualSiteStatus counts the members; who they are is asked from the health API.
type VirtualSiteStatus struct {
	// +kubebuilder:default=0
	// +optional
	Sites int32 `json:"sites"`
	// +kubebuilder:default=0
	// +optional
	Green int32 `json:"green"`
	// +kubebuilder:default=0
	// +optional
	Orange int32 `json:"orange"`
	// +kubebuilder:default=0
	// +optional
	Red int32 `json:"red"`
	// +kubebuilder:default=0
	// +optional
	Grey int32 `json:"grey"`
	// Maintenance counts members in maintenance; they are in no colour's count.
	// +kubebuilder:default=0
	// +optional
	Maintenance int32 `json:"maintenance"`
	// Members are the names of the sites, sorted, the first 1,000 of them.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Members []string `json:"members,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true

// VirtualSiteList is a list of virtual sites.
type VirtualSiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualSite `json:"items"`
}

// RegistrationToken lets machines register as sites of the tenant in whose
// system namespace it lives. The secret itself is never stored.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rt
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.uses`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxUses`
// +kubebuilder:printcolumn:name="Auto-Approve",type=boolean,JSONPath=`.spec.autoApprove`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="metadata.name: at most 63 lower-case letters, digits or '-'"
type RegistrationToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RegistrationTokenSpec   `json:"spec,omitempty"`
	Status RegistrationTokenStatus `json:"status,omitempty"`
}

// RegistrationTokenSpec says what a holder of the token may do.
type RegistrationTokenSpec struct {
	// SecretHash is the SHA-256, in hex, of the token's secret part.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="make a new token instead of changing a secret"
	SecretHash string `json:"secretHash"`
	// AutoApprove approves sites that come with this token.
	// +optional
	AutoApprove bool `json:"autoApprove,omitempty"`
	// MaxUses is how many sites may register with it; 0: any number.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxUses int32 `json:"maxUses,omitempty"`
	// Expires is when it stops working; absent: never.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`
	// Revoked stops it now. Sites that registered with it stay.
	// +optional
	Revoked bool `json:"revoked,omitempty"`
	// SiteLabels are stamped on each site that registers with it.
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('muster.dev/'))",message="labels under muster.dev/ are discovered or set by Muster and can't be stamped"
	// +optional
	SiteLabels map[string]string `json:"siteLabels,omitempty"`
	// SiteNamePattern is a regular expression, anchored at both ends, that the
	// wanted name must match; empty: any.
	// +kubebuilder:validation:MaxLength=200
	// +optional
	SiteNamePattern string `json:"siteNamePattern,omitempty"`
}

// RegistrationTokenStatus counts uses.
type RegistrationTokenStatus struct {
	// +kubebuilder:validation:Enum=Active;Exhausted;Expired;Revoked
	// +optional
	State string `json:"state,omitempty"`
	// +kubebuilder:default=0
	// +optional
	Uses int32 `json:"uses"`
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// +kubebuilder:object:root=true

// RegistrationTokenList is a list of tokens.
type RegistrationTokenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RegistrationToken `json:"items"`
}
