// Package config is the shape of Muster's one configuration file: defaults,
// validation, and the annotated sample that ships with the product. It starts
// nothing; the roles in cmd/internal read it, and `muster config check` checks it.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster.dev/muster/internal/conf"
	"muster.dev/muster/internal/egress"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/obs"
)

// Sample is the annotated configuration file; it parses to the defaults.
//
//go:embed muster.yaml
var Sample []byte

// Config is the whole file. Every field is described in muster.yaml.
type Config struct {
	DataDir     string   `yaml:"dataDir"`
	TrustDomain string   `yaml:"trustDomain"`
	Log         Log      `yaml:"log"`
	OpsHosts    []string `yaml:"opsHosts"`
	// InsecureLoopback has roles talk plain HTTP, on loopback addresses alone.
	InsecureLoopback bool       `yaml:"insecureLoopback"`
	OIDC             OIDC       `yaml:"oidc"`
	Control          Control    `yaml:"control"`
	Regionals        []Regional `yaml:"regionals"`
	Aggregator       Aggregator `yaml:"aggregator"`
	Health           Health     `yaml:"health"`
	Alerting         Alerting   `yaml:"alerting"`
	Console          Console    `yaml:"console"`
}

// Log says how roles log.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Control configures the control plane.
type Control struct {
	Listen       string        `yaml:"listen"`
	FleetListen  string        `yaml:"fleetListen"`
	OpsListen    string        `yaml:"opsListen"`
	FleetAddress string        `yaml:"fleetAddress"`
	ExtraSANs    []string      `yaml:"extraSANs"`
	Etcd         Etcd          `yaml:"etcd"`
	Tenants      []string      `yaml:"tenants"`
	Quotas       Quotas        `yaml:"quotas"`
	SiteCertLife conf.Duration `yaml:"siteCertificateLife"`
	Software     Repository    `yaml:"software"`
	Desired      Desired       `yaml:"desired"`
}

// Desired is where what sites were given is kept; empty: in dataDir.
type Desired struct {
	BucketFile string `yaml:"bucketFile"`
}

// Repository is where sites' software lies, signed; neither Dir nor BucketFile: nowhere.
type Repository struct {
	Dir        string `yaml:"dir"`
	BucketFile string `yaml:"bucketFile"`
	OnlineKeys string `yaml:"onlineKeys"`
	CacheBytes int64  `yaml:"cacheBytes"`
}

// Quotas of a tenant that sets none of its own; 0: no limit.
type Quotas struct {
	Sites          int32 `yaml:"sites"`
	Series         int64 `yaml:"series"`
	LogBytesPerDay int64 `yaml:"logBytesPerDay"`
	Objects        int64 `yaml:"objects"`
	ObjectBytes    int64 `yaml:"objectBytes"`
}

// Etcd names an external etcd; empty endpoints mean the embedded one.
type Etcd struct {
	Endpoints []string `yaml:"endpoints"`
	CAFile    string   `yaml:"caFile"`
	CertFile  string   `yaml:"certFile"`
	KeyFile   string   `yaml:"keyFile"`
}

// OIDC lets users log in with an identity provider: the API server believes its
// tokens, the console and `muster login` fetch them.
type OIDC struct {
	IssuerURL        string   `yaml:"issuerURL"`
	CAFile           string   `yaml:"caFile"`
	ClientID         string   `yaml:"clientID"`
	ClientSecretFile string   `yaml:"clientSecretFile"`
	Scopes           []string `yaml:"scopes"`
	CLIClientID      string   `yaml:"cliClientID"`
	CLIScopes        []string `yaml:"cliScopes"`
	UsernameClaim    string   `yaml:"usernameClaim"`
	UsernamePrefix   string   `yaml:"usernamePrefix"`
	GroupsClaim      string   `yaml:"groupsClaim"`
	GroupsPrefix     string   `yaml:"groupsPrefix"`
}

// Regional configures one regional edge.
type Regional struct {
	Name         string        `yaml:"name"`
	Listen       string        `yaml:"listen"`
	Address      string        `yaml:"address"`
	QueryListen  string        `yaml:"queryListen"`
	QueryURL     string        `yaml:"queryURL"`
	ExtraSANs    []string      `yaml:"extraSANs"`
	Retention    conf.Duration `yaml:"retention"`
	PushMemory   int64         `yaml:"pushMemory"`
	ForwardBytes int64         `yaml:"forwardBytes"`
	ForwardSync  conf.Duration `yaml:"forwardSync"`
	RuleFiles    []string      `yaml:"ruleFiles"`
	Limits       Limits        `yaml:"limits"`
	Logs         Logs          `yaml:"logs"`
	Software     Downloads     `yaml:"software"`
}

// Downloads are what a regional spends on sites' software.
type Downloads struct {
	CacheBytes     int64 `yaml:"cacheBytes"`
	BytesPerSecond int   `yaml:"bytesPerSecond"`
	AtOnce         int   `yaml:"atOnce"`
}

// Logs configures a regional's log intake and store.
type Logs struct {
	ForwardListen        string        `yaml:"forwardListen"`
	ForwardSharedKeyFile string        `yaml:"forwardSharedKeyFile"`
	LineBytes            int           `yaml:"lineBytes"`
	QueueBytes           int64         `yaml:"queueBytes"`
	QueueSync            conf.Duration `yaml:"queueSync"`
	QueueAge             conf.Duration `yaml:"queueAge"`
	Retention            conf.Duration `yaml:"retention"`
	MaxBytes             int64         `yaml:"maxBytes"`
	SiteBytesPerSecond   int64         `yaml:"siteBytesPerSecond"`
	Elasticsearch        Elasticsearch `yaml:"elasticsearch"`
}

// Elasticsearch is the region's cluster; no URLs: the embedded store.
type Elasticsearch struct {
	URLs           []string          `yaml:"urls"`
	Username       string            `yaml:"username"`
	PasswordFile   string            `yaml:"passwordFile"`
	APIKeyFile     string            `yaml:"apiKeyFile"`
	CAFile         string            `yaml:"caFile"`
	Prefix         string            `yaml:"prefix"`
	Replicas       int               `yaml:"replicas"`
	Shards         int               `yaml:"shards"`
	RemoteClusters map[string]string `yaml:"remoteClusters"`
}

// Limits bound what one site may send to a regional.
type Limits struct {
	Series           int `yaml:"series"`
	SamplesPerSecond int `yaml:"samplesPerSecond"`
	BodyBytes        int `yaml:"bodyBytes"`
	HistogramBuckets int `yaml:"histogramBuckets"`
	TenantSeries     int `yaml:"tenantSeries"`
	// TenantSamplesPerSecond of all sites of a tenant.
	TenantSamplesPerSecond int `yaml:"tenantSamplesPerSecond"`
	// TenantAlertBytes of memory that alerts of one tenant's metric rules may take.
	TenantAlertBytes int64 `yaml:"tenantAlertBytes"`
	// TenantHostConnections of one tenant's sites to virtual hosts at once, and the bytes a
	// second that all of them pass, both directions together.
	TenantHostConnections    int   `yaml:"tenantHostConnections"`
	TenantHostBytesPerSecond int64 `yaml:"tenantHostBytesPerSecond"`
}

// Aggregator configures the metric store.
type Aggregator struct {
	OpsListen string `yaml:"opsListen"`
	Cortex    Cortex `yaml:"cortex"`
}

// Cortex is embedded, or an external cluster by URL.
type Cortex struct {
	Listen    string        `yaml:"listen"`
	URL       string        `yaml:"url"`
	Retention conf.Duration `yaml:"retention"`
}

// Health configures the health engine.
type Health struct {
	OpsListen string        `yaml:"opsListen"`
	Tick      conf.Duration `yaml:"tick"`
	// OfflineAfter is how long a site may have neither a stream nor an acknowledged push.
	OfflineAfter conf.Duration `yaml:"offlineAfter"`
}

// Alerting configures the alerting role and its Alertmanager.
type Alerting struct {
	OpsListen    string        `yaml:"opsListen"`
	OpsURLs      []string      `yaml:"opsURLs"`
	Alertmanager Alertmanager  `yaml:"alertmanager"`
	SiteDownFor  conf.Duration `yaml:"siteDownFor"`
	ShippedRules bool          `yaml:"shippedRules"`
}

// Alertmanager is embedded, or external by URL.
type Alertmanager struct {
	Listen      string        `yaml:"listen"`
	ExternalURL string        `yaml:"externalURL"`
	URLs        []string      `yaml:"urls"`
	Retention   conf.Duration `yaml:"retention"`
	Cluster     AlertCluster  `yaml:"cluster"`
	// AllowNetworks that receivers may reach though they are not public, and DenyNetworks
	// that they may not: see egress.Options.
	AllowNetworks []string `yaml:"allowNetworks"`
	DenyNetworks  []string `yaml:"denyNetworks"`
}

// AlertCluster joins embedded Alertmanagers.
type AlertCluster struct {
	Listen    string   `yaml:"listen"`
	Advertise string   `yaml:"advertise"`
	Peers     []string `yaml:"peers"`
}

// Console configures the web console and the HTTP API.
type Console struct {
	Listen         string   `yaml:"listen"`
	OpsListen      string   `yaml:"opsListen"`
	CertFile       string   `yaml:"certFile"`
	KeyFile        string   `yaml:"keyFile"`
	ExternalURL    string   `yaml:"externalURL"`
	TrustedProxies []string `yaml:"trustedProxies"`
	SessionKeyFile string   `yaml:"sessionKeyFile"`
}

func (c Console) validate(oidc bool) error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("certFile and keyFile go together; set both or neither")
	}
	if c.ExternalURL != "" {
		u, err := url.Parse(c.ExternalURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return fmt.Errorf("externalURL: %q: want what browsers open, without a path, such as https://muster.example.com", c.ExternalURL)
		}
	}
	if host, _, err := net.SplitHostPort(c.Listen); oidc && c.ExternalURL == "" && (err != nil || !isLoopback(host)) {
		return errors.New("externalURL: must be set with oidc.issuerURL: the identity provider sends browsers back to it; want such as https://muster.example.com")
	}
	for i, p := range c.TrustedProxies {
		if _, err := netip.ParsePrefix(p); err != nil {
			return fmt.Errorf("trustedProxies[%d]: %q: want a network such as 10.0.0.0/8, or one address as 10.0.0.7/32", i, p)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// URL under which browsers reach the console; without ExternalURL those on this
// machine.
func (c Console) URL() string {
	if c.ExternalURL != "" {
		return strings.TrimRight(c.ExternalURL, "/")
	}
	if c.CertFile != "" {
		return "https://" + c.Listen
	}
	return "http://" + c.Listen
}

// DefaultRegional is a regional with every default but its name and ports, which
// count up from the first: 7443 and 9091, 7444 and 9092, …
func DefaultRegional(name string, index int) Regional {
	return Regional{
		Name:         name,
		Listen:       fmt.Sprintf("127.0.0.1:%d", 7443+index),
		QueryListen:  fmt.Sprintf("127.0.0.1:%d", 9091+index),
		Retention:    conf.Duration(7 * 24 * time.Hour),
		PushMemory:   256 << 20,
		ForwardBytes: 2 << 30,
		Limits:       Limits{Series: 10_000, SamplesPerSecond: 5_000, BodyBytes: 4 << 20, HistogramBuckets: 512, TenantSeries: 10_000_000, TenantSamplesPerSecond: 1_000_000, TenantAlertBytes: 64 << 20, TenantHostConnections: 2000, TenantHostBytesPerSecond: 32 << 20},
		Logs:         Logs{ForwardListen: fmt.Sprintf("127.0.0.1:%d", 24224+index), LineBytes: 256 << 10, QueueBytes: 4 << 30, Retention: conf.Duration(7 * 24 * time.Hour), SiteBytesPerSecond: 16 << 20, Elasticsearch: Elasticsearch{Prefix: "muster-logs", Shards: 1}},
		Software:     Downloads{CacheBytes: 20 << 30, BytesPerSecond: 64 << 20, AtOnce: 1000},
	}
}

// Default is the configuration of a one-machine fleet.
func Default() Config {
	return Config{
		DataDir:     "./.muster",
		TrustDomain: "muster.local",
		Log:         Log{Level: "info", Format: "logfmt"},
		OIDC: OIDC{Scopes: []string{"openid", "profile", "email", "groups", "offline_access"},
			UsernameClaim: "sub", UsernamePrefix: "oidc:", GroupsClaim: "groups", GroupsPrefix: "oidc:"},
		Control: Control{
			Listen: "127.0.0.1:6443", FleetListen: "127.0.0.1:6444", OpsListen: "127.0.0.1:9101",
			Tenants: []string{"main"}, SiteCertLife: conf.Duration(24 * time.Hour),
			Quotas:   Quotas{Sites: 10_000, Series: 10_000_000, LogBytesPerDay: 1_000_000_000_000, Objects: 20_000, ObjectBytes: 256 << 20},
			Software: Repository{CacheBytes: 20 << 30},
		},
		Regionals:  []Regional{DefaultRegional("one", 0)},
		Aggregator: Aggregator{OpsListen: "127.0.0.1:9102", Cortex: Cortex{Listen: "127.0.0.1:9009", Retention: conf.Duration(30 * 24 * time.Hour)}},
		Health:     Health{OpsListen: "127.0.0.1:9103", Tick: conf.Duration(15 * time.Second), OfflineAfter: conf.Duration(15 * time.Second)},
		Alerting: Alerting{OpsListen: "127.0.0.1:9107", SiteDownFor: conf.Duration(15 * time.Second), ShippedRules: true,
			Alertmanager: Alertmanager{Listen: "127.0.0.1:9093", Retention: conf.Duration(5 * 24 * time.Hour)}},
		Console: Console{Listen: "127.0.0.1:8080", OpsListen: "127.0.0.1:9104"},
	}
}

// Load reads a file over the defaults; an empty path gives the defaults.
func Load(path string) (Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	return c, conf.Load(path, &c)
}

// UnmarshalYAML fills a regional's missing fields with the defaults.
func (r *Regional) UnmarshalYAML(decode func(any) error) error {
	type plain Regional
	p := plain(DefaultRegional("", 0))
	p.Listen, p.QueryListen, p.Logs.ForwardListen = "", "", ""
	if err := decode(&p); err != nil {
		return err
	}
	*r = Regional(p)
	return nil
}

// Validate names the first field that can't work, and what to write instead.
func (c *Config) Validate() error {
	if c.DataDir == "" {
		return errors.New("dataDir: must not be empty")
	}
	if _, err := obs.NewLogger(os.Stderr, obs.LogOptions{Level: c.Log.Level, Format: c.Log.Format}); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	u, err := url.Parse("spiffe://" + c.TrustDomain + "/")
	if err != nil || c.TrustDomain == "" || u.Host != c.TrustDomain {
		return fmt.Errorf("trustDomain: %q: want a DNS name such as muster.example.com", c.TrustDomain)
	}
	for i, t := range c.Control.Tenants {
		if err := fleet.ValidateTenant(t); err != nil {
			return fmt.Errorf("control.tenants[%d]: %w", i, err)
		}
	}
	for field, n := range map[string]int64{"sites": int64(c.Control.Quotas.Sites), "series": c.Control.Quotas.Series, "logBytesPerDay": c.Control.Quotas.LogBytesPerDay,
		"objects": c.Control.Quotas.Objects, "objectBytes": c.Control.Quotas.ObjectBytes} {
		if n < 0 {
			return fmt.Errorf("control.quotas.%s: %d: want 0, for no limit, or more", field, n)
		}
	}
	if d := c.Control.SiteCertLife.D(); d < 10*time.Minute || d > 90*24*time.Hour {
		return fmt.Errorf("control.siteCertificateLife: %s: want 10m to 2160h", d)
	}
	if err := c.Control.Software.validate(); err != nil {
		return fmt.Errorf("control.software.%w", err)
	}
	if len(c.Control.Etcd.Endpoints) == 0 && c.Control.Etcd.CertFile+c.Control.Etcd.KeyFile+c.Control.Etcd.CAFile != "" {
		return errors.New("control.etcd.endpoints: must name the external etcd when its certificates are set")
	}
	if d := c.Health.Tick.D(); d < time.Second || d > 5*time.Minute {
		return fmt.Errorf("health.tick: %s: want 1s to 5m", d)
	}
	if d := c.Health.OfflineAfter.D(); d < 5*time.Second || d > 10*time.Minute {
		return fmt.Errorf("health.offlineAfter: %s: want 5s to 10m", d)
	}
	if err := c.OIDC.validate(); err != nil {
		return fmt.Errorf("oidc.%w", err)
	}
	if err := c.Console.validate(c.OIDC.IssuerURL != ""); err != nil {
		return fmt.Errorf("console.%w", err)
	}
	if c.Aggregator.Cortex.URL != "" {
		if u, err := url.Parse(c.Aggregator.Cortex.URL); err != nil || u.Scheme == "" || u.Host == "" {
			return fmt.Errorf("aggregator.cortex.url: %q: want a URL such as https://cortex.example.com", c.Aggregator.Cortex.URL)
		}
	}
	if err := c.Alerting.validate(); err != nil {
		return fmt.Errorf("alerting.%w", err)
	}
	if err := c.validateRegionals(); err != nil {
		return err
	}
	if err := c.validateListeners(); err != nil {
		return err
	}
	return c.validateRoleURLs()
}

func (c *Config) validateRegionals() error {
	if len(c.Regionals) == 0 {
		return errors.New("regionals: want at least one")
	}
	seen := map[string]bool{}
	for i, r := range c.Regionals {
		at := fmt.Sprintf("regionals[%d]", i)
		if err := (fleet.SiteID{Tenant: "x", Name: r.Name}).Validate(); err != nil {
			return fmt.Errorf("%s.name: %q: want lower-case letters, digits or '-'", at, r.Name)
		}
		if seen[r.Name] {
			return fmt.Errorf("%s.name: %q is used twice", at, r.Name)
		}
		seen[r.Name] = true
		if r.Limits.Series < 1 || r.Limits.SamplesPerSecond < 1 || r.Limits.BodyBytes < 1 || r.Limits.HistogramBuckets < 1 || r.Limits.TenantSeries < 1 || r.Limits.TenantSamplesPerSecond < 1 {
			return fmt.Errorf("%s.limits: every limit must be at least 1", at)
		}
		// An alert with ordinary labels takes about 8 KiB.
		if r.Limits.TenantHostConnections < 1 {
			return fmt.Errorf("%s.limits.tenantHostConnections: %d: want at least 1", at, r.Limits.TenantHostConnections)
		}
		if r.Limits.TenantHostBytesPerSecond < 1<<10 {
			return fmt.Errorf("%s.limits.tenantHostBytesPerSecond: %d: want at least 1024 (1 KiB)", at, r.Limits.TenantHostBytesPerSecond)
		}
		if r.Limits.TenantAlertBytes < 1<<20 {
			return fmt.Errorf("%s.limits.tenantAlertBytes: %d: want at least 1048576 (1 MiB)", at, r.Limits.TenantAlertBytes)
		}
		if r.Retention.D() < time.Hour {
			return fmt.Errorf("%s.retention: %s: want at least 1h", at, r.Retention.D())
		}
		if err := r.Logs.validate(); err != nil {
			return fmt.Errorf("%s.logs.%w", at, err)
		}
		if err := r.Software.validate(); err != nil {
			return fmt.Errorf("%s.software.%w", at, err)
		}
		// One request gets a fourth at most, and takes a few times its bytes.
		if r.PushMemory < 64<<20 || r.PushMemory < 32*int64(r.Limits.BodyBytes) {
			return fmt.Errorf("%s.pushMemory: %d: want at least 67108864 (64 MiB), and 32 times limits.bodyBytes", at, r.PushMemory)
		}
		if r.ForwardBytes < 16<<20 {
			return fmt.Errorf("%s.forwardBytes: %d: want at least 16777216 (16 MiB)", at, r.ForwardBytes)
		}
		if d := r.ForwardSync.D(); d < 0 || d > time.Minute {
			return fmt.Errorf("%s.forwardSync: %s: want 0s, for before a push is acknowledged, to 1m", at, d)
		}
	}
	return nil
}

func (o OIDC) validate() error {
	if o.IssuerURL == "" {
		return nil
	}
	u, err := url.Parse(o.IssuerURL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https":
		return fmt.Errorf("issuerURL: %q: want an https URL such as https://login.example.com, as its tokens name it", o.IssuerURL)
	case o.ClientID == "":
		return errors.New("clientID: must be set with issuerURL: the name under which the identity provider knows Muster")
	case !slices.Contains(o.Scopes, "openid"):
		return errors.New("scopes: must contain openid; without it the identity provider gives no ID token")
	case o.UsernameClaim == "":
		return errors.New("usernameClaim: must be set, such as sub or email")
	}
	if err := fleet.ValidateIDPrefix(o.UsernamePrefix); err != nil {
		return fmt.Errorf("usernamePrefix: %w", err)
	}
	if err := fleet.ValidateIDPrefix(o.GroupsPrefix); err != nil {
		return fmt.Errorf("groupsPrefix: %w", err)
	}
	return nil
}

func (l Logs) validate() error {
	es := l.Elasticsearch
	switch {
	case l.LineBytes < 1<<10 || l.LineBytes > 1000<<10:
		return fmt.Errorf("lineBytes: %d: want 1024 to 1024000", l.LineBytes)
	case l.ForwardSharedKeyFile != "" && l.ForwardListen == "":
		return errors.New("forwardSharedKeyFile: set forwardListen, or no sender can use it")
	case l.QueueBytes < 64<<20:
		return fmt.Errorf("queueBytes: %d: want at least 67108864 (64 MiB)", l.QueueBytes)
	case l.QueueSync.D() < 0, l.QueueSync.D() > time.Minute:
		return fmt.Errorf("queueSync: %s: want 0s, for before a message is acknowledged, to 1m", l.QueueSync.D())
	case l.QueueAge.D() != 0 && l.QueueAge.D() < time.Minute:
		return fmt.Errorf("queueAge: %s: want 0, for no cap, or at least 1m", l.QueueAge.D())
	case l.Retention.D() < 24*time.Hour:
		return fmt.Errorf("retention: %s: want at least 24h; logs are deleted by days", l.Retention.D())
	case l.MaxBytes < 0:
		return fmt.Errorf("maxBytes: %d: want 0, for three quarters of what the disk has for it, or more", l.MaxBytes)
	case l.SiteBytesPerSecond < 1<<10 || l.SiteBytesPerSecond > 1<<30:
		return fmt.Errorf("siteBytesPerSecond: %d: want 1024 (1 KiB) to 1073741824 (1 GiB)", l.SiteBytesPerSecond)
	case len(es.URLs) == 0 && es.Username+es.PasswordFile+es.APIKeyFile+es.CAFile != "":
		return errors.New("elasticsearch.urls: must name the cluster when its credentials are set")
	case es.APIKeyFile != "" && es.Username != "":
		return errors.New("elasticsearch: apiKeyFile and username exclude each other; set one")
	case (es.Username == "") != (es.PasswordFile == ""):
		return errors.New("elasticsearch: username and passwordFile go together; set both or neither")
	case es.Replicas < 0 || es.Shards < 0:
		return errors.New("elasticsearch: replicas and shards must not be negative")
	}
	for i, u := range es.URLs {
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return fmt.Errorf("elasticsearch.urls[%d]: %q: want a URL such as https://elasticsearch.example.com:9200", i, u)
		}
	}
	return nil
}

func (a Alerting) validate() error {
	for i, u := range a.Alertmanager.URLs {
		if p, err := url.Parse(u); err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return fmt.Errorf("alertmanager.urls[%d]: %q: want a URL such as http://alertmanager.example.com:9093", i, u)
		}
	}
	if _, err := egress.New(egress.Options{Allow: a.Alertmanager.AllowNetworks, Deny: a.Alertmanager.DenyNetworks}); err != nil {
		return fmt.Errorf("alertmanager.%w", err)
	}
	if d := a.SiteDownFor.D(); d < 0 || d > 24*time.Hour {
		return fmt.Errorf("siteDownFor: %s: want 0s to 24h", d)
	}
	if d := a.Alertmanager.Retention.D(); d < time.Hour {
		return fmt.Errorf("alertmanager.retention: %s: want at least 1h", d)
	}
	if len(a.Alertmanager.Cluster.Peers) > 0 && a.Alertmanager.Cluster.Listen == "" {
		return errors.New("alertmanager.cluster.listen: must be set when there are peers")
	}
	return nil
}

// AlertmanagerURLs are where alerts go, without a slash at the end.
func (c *Config) AlertmanagerURLs() []string {
	var out []string
	for _, u := range c.Alerting.Alertmanager.URLs {
		out = append(out, strings.TrimRight(u, "/"))
	}
	if len(out) == 0 {
		u := c.roleURL(c.Alerting.Alertmanager.Listen)
		if ext, err := url.Parse(c.Alerting.Alertmanager.ExternalURL); err == nil {
			u += strings.TrimRight(ext.Path, "/") // which its endpoints have too
		}
		out = append(out, u)
	}
	return out
}

// listener is one address that some role binds.
type listener struct {
	field, addr string
	roles       bool // it is for other roles, and speaks TLS with certificates of theirs
}

func (c *Config) listeners() []listener {
	out := []listener{
		{"control.listen", c.Control.Listen, false}, {"control.fleetListen", c.Control.FleetListen, false}, {"control.opsListen", c.Control.OpsListen, true},
		{"aggregator.opsListen", c.Aggregator.OpsListen, true}, {"health.opsListen", c.Health.OpsListen, true},
		{"alerting.opsListen", c.Alerting.OpsListen, true}, {"console.listen", c.Console.Listen, false}, {"console.opsListen", c.Console.OpsListen, true},
	}
	if c.Aggregator.Cortex.URL == "" {
		out = append(out, listener{"aggregator.cortex.listen", c.Aggregator.Cortex.Listen, true})
	}
	if len(c.Alerting.Alertmanager.URLs) == 0 {
		out = append(out, listener{"alerting.alertmanager.listen", c.Alerting.Alertmanager.Listen, true})
	}
	for i, r := range c.Regionals {
		out = append(out, listener{fmt.Sprintf("regionals[%d].listen", i), r.Listen, false}, listener{fmt.Sprintf("regionals[%d].queryListen", i), r.QueryListen, true})
		if r.Logs.ForwardListen != "" {
			out = append(out, listener{fmt.Sprintf("regionals[%d].logs.forwardListen", i), r.Logs.ForwardListen, false})
		}
	}
	return out
}

// Egress is what tenants' receivers may reach: never an address of this configuration,
// be it a listener on this machine or a service elsewhere.
func (c *Config) Egress() egress.Options {
	am := c.Alerting.Alertmanager
	o := egress.Options{Allow: am.AllowNetworks, Deny: am.DenyNetworks}
	for _, l := range c.listeners() {
		o.Own = append(o.Own, l.addr)
	}
	o.Own = append(o.Own, c.Control.FleetEndpoint(), c.CortexURL(), am.ExternalURL, am.Cluster.Listen, am.Cluster.Advertise)
	o.Own = slices.Concat(o.Own, c.Control.Etcd.Endpoints, c.Alerting.OpsURLs, am.URLs, am.Cluster.Peers)
	for _, r := range c.Regionals {
		o.Own = append(append(o.Own, r.GatewayAddress(), c.QueryURL(r)), r.Logs.Elasticsearch.URLs...)
	}
	o.Own = slices.DeleteFunc(o.Own, func(s string) bool { return s == "" })
	return o
}

// HostNames are the names that roles on this machine may be reached by: OpsHosts and
// what is a name in the addresses of this configuration.
func (c *Config) HostNames() []string {
	out := slices.Clone(c.OpsHosts)
	for _, s := range c.Egress().Own {
		if u, err := url.Parse(s); err == nil && u.Host != "" {
			s = u.Host
		}
		host, _, err := net.SplitHostPort(s)
		if err != nil {
			host = s
		}
		if _, err := netip.ParseAddr(host); err != nil && host != "" {
			out = append(out, host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c *Config) validateListeners() error {
	used := map[string]string{}
	for _, l := range c.listeners() {
		_, port, err := net.SplitHostPort(l.addr)
		if err != nil {
			return fmt.Errorf("%s: %q: want HOST:PORT, such as 127.0.0.1:8080", l.field, l.addr)
		}
		if other, dup := used[l.addr]; dup && port != "0" {
			return fmt.Errorf("%s: %s is also %s; give each its own port", l.field, l.addr, other)
		}
		used[l.addr] = l.field
	}
	if _, err := egress.New(c.Egress()); err != nil {
		return err
	}
	return nil
}

// CheckPorts reports the listeners whose address is already taken on this
// machine, as one line a listener.
func (c *Config) CheckPorts() error {
	var errs []error
	for _, l := range c.listeners() {
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s can't be used: %w; stop what holds it or set another address in the config file", l.field, l.addr, unwrapOp(err)))
			continue
		}
		_ = ln.Close()
	}
	return errors.Join(errs...)
}

func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Path joins elements below the data directory.
func (c *Config) Path(elem ...string) string {
	return filepath.Join(append([]string{c.DataDir}, elem...)...)
}

// Regional returns the regional of that name.
func (c *Config) Regional(name string) (Regional, error) {
	i := slices.IndexFunc(c.Regionals, func(r Regional) bool { return r.Name == name })
	if i < 0 {
		var names []string
		for _, r := range c.Regionals {
			names = append(names, r.Name)
		}
		return Regional{}, fmt.Errorf("no regional named %q in the config; it has %v", name, names)
	}
	return c.Regionals[i], nil
}

// GatewayAddress is where sites reach the regional.
func (r Regional) GatewayAddress() string {
	if r.Address != "" {
		return r.Address
	}
	return r.Listen
}

// QueryURL is where other roles reach a regional's engines and live view, without a slash
// at the end.
func (c *Config) QueryURL(r Regional) string {
	if r.QueryURL != "" {
		return strings.TrimRight(r.QueryURL, "/")
	}
	return c.roleURL(r.QueryListen)
}

// FleetEndpoint is where regionals reach control.
func (c Control) FleetEndpoint() string {
	if c.FleetAddress != "" {
		return c.FleetAddress
	}
	return c.FleetListen
}

// CortexURL is where the other roles reach Cortex, without a trailing slash.
func (c *Config) CortexURL() string {
	if c.Aggregator.Cortex.URL != "" {
		return c.Aggregator.Cortex.URL
	}
	return c.roleURL(c.Aggregator.Cortex.Listen)
}
