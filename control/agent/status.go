package agent

import (
	"maps"
	"slices"
	"time"
)

// Status is what `muster-edge status` shows. It holds no secret.
type Status struct {
	Phase   Phase     `json:"phase"`
	Message string    `json:"message,omitempty"` // one line for a person
	Since   time.Time `json:"since"`

	Tenant string `json:"tenant,omitempty"`
	Site   string `json:"site,omitempty"`
	Region string `json:"region,omitempty"`

	Servers     []string           `json:"servers"`
	Server      string             `json:"server,omitempty"` // in use, or tried last
	Regional    string             `json:"regional,omitempty"`
	LastError   string             `json:"lastError,omitempty"`
	LastErrorAt time.Time          `json:"lastErrorAt,omitzero"`
	Certificate *StatusCertificate `json:"certificate,omitempty"`
	Desired     StatusDesired      `json:"desired"`
	Conditions  []StatusCondition  `json:"conditions"`
	Version     string             `json:"version"`
}

// StatusCertificate is the site's certificate.
type StatusCertificate struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	RenewAt   time.Time `json:"renewAt"`
	Expired   bool      `json:"expired,omitempty"`
}

// StatusDesired compares what the site should hold with what is in effect.
type StatusDesired struct {
	Revision string       `json:"revision,omitempty"` // wanted
	Applied  string       `json:"applied,omitempty"`  // wholly in effect
	Items    []StatusItem `json:"items"`
}

// StatusItem is one item.
type StatusItem struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Digest  string `json:"digest"`            // wanted
	Running string `json:"running,omitempty"` // in effect
	Error   string `json:"error,omitempty"`
}

// StatusCondition is a condition that the site reports.
type StatusCondition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Status returns what the agent does, and what is wrong.
func (a *Agent) Status() Status {
	a.mu.Lock()
	s := Status{
		Phase: a.phase, Message: a.message, Since: a.since, Tenant: a.id.Site.Tenant, Site: a.id.Site.Name, Region: a.id.Region,
		Servers: slices.Clone(a.join.Servers), LastError: a.lastErr, LastErrorAt: a.lastErrAt, Version: a.opts.Version,
		Conditions: []StatusCondition{}, Desired: StatusDesired{Items: []StatusItem{}},
	}
	if len(a.join.Servers) > 0 {
		s.Server = a.join.Servers[a.server]
	} else {
		s.Message = ErrNotJoined.Error()
	}
	s.Regional = a.connected.GetRegional()
	for _, typ := range slices.Sorted(maps.Keys(a.conditions)) {
		c := a.conditions[typ]
		s.Conditions = append(s.Conditions, StatusCondition{c.Type, c.Status, c.Reason, c.Message})
	}
	cert := a.cert
	a.mu.Unlock()
	if cert != nil {
		s.Certificate = &StatusCertificate{
			NotBefore: cert.Leaf.NotBefore, NotAfter: cert.Leaf.NotAfter, RenewAt: a.renewAt(), Expired: !a.opts.Now().Before(cert.Leaf.NotAfter),
		}
	}
	d := &a.desired
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Desired.Applied, s.Desired.Revision = d.applied, d.target.GetRevision()
	for _, it := range d.target.GetItems() {
		k := it.GetKind() + "/" + it.GetName()
		s.Desired.Items = append(s.Desired.Items, StatusItem{Kind: it.GetKind(), Name: it.GetName(), Digest: it.GetDigest(), Running: d.running[k], Error: d.fails[k]})
	}
	return s
}
