package alertroute

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// dialled are the fields whose hosts Alertmanager connects to, and the receivers' kinds
// that they mean this in; no kinds: all. Other URLs are links for whoever reads.
var dialled = map[string][]string{
	"url":         {"webhook_configs", "pagerduty_configs", "incidentio_configs"},
	"api_url":     nil,
	"webhook_url": nil,
	"proxy_url":   nil,
	"smarthost":   nil,
}

// Unreachable asks reach about each destination that is written out, as HOST:PORT, and
// returns an error at the field of each that it refuses. Secrets and templates are left
// out: what they turn out to be is refused when it is dialled. reach may be nil.
func (s *Spec) Unreachable(reach func(address string) error) field.ErrorList {
	if reach == nil {
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("spec", "receivers")
	for i, r := range s.Receivers {
		for _, kind := range keys(r) {
			l, _ := r[kind].([]any)
			for j := range l {
				errs = append(errs, unreachable(at.Index(i).Child(kind).Index(j), kind, l[j], reach)...)
			}
		}
	}
	return errs
}

func unreachable(at *field.Path, kind string, v any, reach func(string) error) field.ErrorList {
	m, is := v.(map[string]any)
	if !is {
		return nil
	}
	var errs field.ErrorList
	for _, k := range keys(m) {
		if k == "http_config" {
			errs = append(errs, unreachable(at.Child(k), kind, m[k], reach)...)
		}
		kinds, is := dialled[k]
		text, isText := m[k].(string)
		if !is || !isText || kinds != nil && !slices.Contains(kinds, kind) {
			continue
		}
		if address := destination(k, text); address != "" {
			if err := reach(address); err != nil {
				errs = append(errs, field.Forbidden(at.Child(k), err.Error()))
			}
		}
	}
	return errs
}

// destination is HOST:PORT of a field, or nothing if that shows only later.
func destination(key, text string) string {
	if strings.Contains(text, "{{") {
		return ""
	}
	if key == "smarthost" {
		return text
	}
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Hostname() == "" {
		return "" // Alertmanager's parser has said what is wrong with it
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
