package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// onCallPath is the webhook of the demo's receiver, on OpsListen.
const onCallPath = "/oncall"

// maxNotices is how many notifications the demo's phone keeps.
const maxNotices = 200

// Notice is one notification that reached the phone of whoever is on call.
type Notice struct {
	At       time.Time `json:"at"`
	Status   string    `json:"status"` // firing or resolved
	Alert    string    `json:"alert"`
	Site     string    `json:"site"`
	Severity string    `json:"severity"`
	Summary  string    `json:"summary"`
	StartsAt time.Time `json:"startsAt"`
}

// phone is the demo's webhook receiver.
type phone struct {
	mu      sync.Mutex
	notices []Notice
}

// ServeHTTP takes Alertmanager's webhook by POST and shows what came by GET.
func (p *phone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		p.mu.Lock()
		defer p.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]Notice{}, p.notices...))
		return
	}
	var msg struct {
		Alerts []struct {
			Status      string            `json:"status"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
			StartsAt    time.Time         `json:"startsAt"`
		} `json:"alerts"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 8<<20)).Decode(&msg); err != nil {
		http.Error(w, "want Alertmanager's webhook: "+err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range msg.Alerts {
		p.notices = append(p.notices, Notice{At: time.Now(), Status: a.Status, Alert: a.Labels["alertname"], Site: a.Labels["site"], Severity: a.Labels["severity"],
			Summary: a.Annotations["summary"], StartsAt: a.StartsAt})
	}
	if extra := len(p.notices) - maxNotices; extra > 0 {
		p.notices = slices.Delete(p.notices, 0, extra)
	}
}

// OnCall prints what reached the phone of whoever is on call in the demo.
func (c *FaultClient) OnCall(ctx context.Context, w io.Writer) error {
	b, err := c.call(ctx, http.MethodGet, onCallPath)
	if err != nil {
		return err
	}
	var list []Notice
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("answer of the demo: %w", err)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "TIME\tSTATUS\tALERT\tSITE\tSEVERITY\tSUMMARY")
	for _, n := range list {
		fmt.Fprintln(tw, strings.Join([]string{n.At.Local().Format(time.TimeOnly), n.Status, n.Alert, n.Site, n.Severity, n.Summary}, "\t"))
	}
	return tw.Flush()
}

// alerting makes the rules and the route of the demo's tenant.
func (p *provisioner) alerting(ctx context.Context) error {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: fleet.SystemNamespace(Tenant)}
	}
	minute := &metav1.Duration{Duration: time.Minute}
	raw := func(s string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(s)} }
	rules := &v1alpha1.AlertRules{ObjectMeta: meta("shop"), Spec: v1alpha1.AlertRulesSpec{Engine: "edge", Groups: []v1alpha1.RuleGroup{{Name: "shop", Interval: "10s", Rules: []v1alpha1.Rule{{
		Alert: "ShopDeploymentShort", For: "15s",
		Expr:        `kube_deployment_status_replicas_available{namespace="shop"} < on (tenant, site, region, namespace, deployment) kube_deployment_spec_replicas{namespace="shop"}`,
		Labels:      map[string]string{"severity": "warning"},
		Annotations: map[string]string{"summary": "{{ $labels.deployment }} at {{ $labels.site }} has {{ $value }} replicas available, fewer than it wants"},
	}}}}}}
	logs := &v1alpha1.LogRules{ObjectMeta: meta("shop"), Spec: v1alpha1.LogRulesSpec{Rules: []v1alpha1.LogRule{
		{Name: "ErrorBurst", Type: "frequency", Filter: "severity:error", NumEvents: 10, Timeframe: minute, Realert: minute, Severity: "warning",
			Annotations: map[string]string{"summary": "{{ $value }} error lines within a minute at {{ $labels.site }}, such as: {{ $message }}"}},
		{Name: "OutOfMemoryKill", Type: "any", Filter: `unit:kernel AND "out of memory"`, Realert: minute, KeepFiringFor: minute, Severity: "critical",
			Annotations: map[string]string{"summary": "the kernel of {{ $labels.site }} killed for memory: {{ $message }}"}},
		{Name: "PasswordGuessing", Type: "frequency", Filter: `unit:sshd.service AND "failed password"`, NumEvents: 5, Timeframe: minute, Realert: minute, Severity: "warning",
			Annotations: map[string]string{"summary": "somebody guesses passwords at {{ $labels.site }}"}},
		{Name: "NoLogs", Type: "flatline", Threshold: 1, Timeframe: &metav1.Duration{Duration: 3 * time.Minute}, Realert: minute, Severity: "warning",
			Annotations: map[string]string{"summary": "{{ $labels.site }} has logged nothing for three minutes"}},
	}}}
	route := &v1alpha1.AlertRoute{ObjectMeta: meta("on-call"), Spec: v1alpha1.AlertRouteSpec{
		Route:     raw(`{"receiver": "phone", "group_by": ["alertname", "site"], "group_wait": "2s", "group_interval": "10s", "repeat_interval": "4h"}`),
		Receivers: []apiextensionsv1.JSON{raw(`{"name": "phone", "webhook_configs": [{"url": "http://` + OpsListen + onCallPath + `", "send_resolved": true}]}`)},
	}}
	if err := p.create(ctx, rules); err != nil {
		return err
	}
	if err := p.create(ctx, logs); err != nil {
		return err
	}
	return p.create(ctx, route)
}
