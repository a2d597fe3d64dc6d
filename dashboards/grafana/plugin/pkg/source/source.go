package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/backend/httpclient"
	"github.com/grafana/grafana-plugin-sdk-go/backend/instancemgmt"
	"github.com/grafana/grafana-plugin-sdk-go/backend/resource/httpadapter"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/console"
)

// PluginID is the id in plugin.json.
const PluginID = "muster-fleet-datasource"

// settings are the jsonData that people set.
type settings struct {
	// Tenant is the one that is asked for; empty: all that the user may read, where the
	// console's API allows that.
	Tenant string `json:"tenant"`
	// OAuthPassThru is Grafana's own switch: the user's identity is handed on.
	OAuthPassThru bool `json:"oauthPassThru"`
}

// Source is one configured data source. It is safe for concurrent use.
type Source struct {
	backend.CallResourceHandler

	settings settings
	uid      string
	url      string
	token    string
	http     *http.Client // for answers
	endless  *http.Client // for streams
	viewers  *viewers     // whose streams are their own
}

// New makes the data source of these settings.
func New(ctx context.Context, in backend.DataSourceInstanceSettings) (instancemgmt.Instance, error) {
	s := &Source{uid: in.UID, url: strings.TrimRight(in.URL, "/"), token: in.DecryptedSecureJSONData["token"], viewers: newViewers()}
	if len(in.JSONData) > 0 {
		if err := json.Unmarshal(in.JSONData, &s.settings); err != nil {
			return nil, backend.DownstreamErrorf("jsonData: %v: save the data source's settings again", err)
		}
	}
	if u, err := url.Parse(s.url); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, backend.DownstreamErrorf("url: %q: want the console's, such as https://muster.example.com", in.URL)
	}
	opts, err := in.HTTPClientOptions(ctx)
	if err != nil {
		return nil, backend.DownstreamErrorf("the settings of HTTP and TLS: %v", err)
	}
	// Who asks is ours to say: see authorization.
	opts.ForwardHTTPHeaders = false
	if s.http, err = httpclient.New(opts); err != nil {
		return nil, backend.DownstreamErrorf("the settings of HTTP and TLS: %v", err)
	}
	s.endless = &http.Client{Transport: s.http.Transport}
	s.CallResourceHandler = httpadapter.New(s.resources())
	return s, nil
}

// Dispose implements instancemgmt.InstanceDisposer.
func (s *Source) Dispose() { s.http.CloseIdleConnections() }

// forwarded is a request that carries what Grafana forwards of the user's.
type forwarded interface{ GetHTTPHeader(key string) string }

var errNoIdentity = errors.New("no identity: this data source hands on the identity of who is logged in, and Grafana sent none. " +
	"Log in to Grafana through the identity provider; for alert rules and public dashboards, which nobody is logged in for, use a data source with a token")

// authorization is the header that names the user. A data source that hands identities on
// never falls back to its token: that would be another user's rights.
func (s *Source) authorization(req forwarded) (string, error) {
	if !s.settings.OAuthPassThru {
		if s.token == "" {
			return "", errors.New("token: none is set; set one in the data source's settings, or let it forward the user's OAuth identity")
		}
		return "Bearer " + s.token, nil
	}
	// What the API server reviews are ID tokens; the access token may be one of these too.
	if id := req.GetHTTPHeader(backend.OAuthIdentityIDTokenHeaderName); id != "" {
		return "Bearer " + id, nil
	}
	if a := req.GetHTTPHeader(backend.OAuthIdentityTokenHeaderName); strings.HasPrefix(a, "Bearer ") {
		return a, nil
	}
	return "", errNoIdentity
}

func (s *Source) client(req forwarded) (*console.Client, error) {
	who, err := s.authorization(req)
	if err != nil {
		return nil, err
	}
	return s.as(who), nil
}

func (s *Source) as(authorization string) *console.Client {
	return &console.Client{HTTP: s.http, URL: s.url, Tenant: s.settings.Tenant, Authorization: authorization}
}

// CheckHealth implements backend.CheckHealthHandler: it says as whom the console knows the
// user and which tenants they read.
func (s *Source) CheckHealth(ctx context.Context, req *backend.CheckHealthRequest) (*backend.CheckHealthResult, error) {
	failed := func(msg string) (*backend.CheckHealthResult, error) {
		return &backend.CheckHealthResult{Status: backend.HealthStatusError, Message: msg}, nil
	}
	c, err := s.client(req)
	if err != nil {
		return failed(err.Error())
	}
	who, err := c.Session(ctx)
	switch {
	case console.StatusOf(err) == http.StatusUnauthorized:
		return failed("the console doesn't take this identity: " + err.Error())
	case err != nil:
		return failed(err.Error())
	case len(who.Tenants) == 0:
		return failed(fmt.Sprintf("%s may read no tenant: put them into the group muster:tenant:TENANT:viewer", who.User))
	}
	t := s.settings.Tenant
	for _, may := range who.Tenants {
		if t == "" || t == may {
			return &backend.CheckHealthResult{Status: backend.HealthStatusOk,
				Message: fmt.Sprintf("The console knows you as %s; tenant: %s", who.User, cmp.Or(t, strings.Join(who.Tenants, ", ")))}, nil
		}
	}
	return failed(fmt.Sprintf("tenant: %q: %s may not read it, or there is none; they read %s", t, who.User, strings.Join(who.Tenants, ", ")))
}
