// Package cluster finds what there is to scrape in a Kubernetes cluster, so that a
// cluster becomes a site without a scrape config written by hand: kubelets, cAdvisor,
// kube-state-metrics, Cilium, CoreDNS, the host metrics of its nodes, annotated pods.
//
// It writes scrape configs for the collector, whose kubernetes_sd discovery follows
// nodes and pods; itself it only looks, once a minute, which of the known exporters the
// cluster has and what its service account may not read. It scrapes nothing, and changes
// nothing in the cluster but the number of replicas of the kube-state-metrics that came
// with the manifest: none while the cluster has one of its own. cmd/internal/edge runs it.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options of New. Config and Apply are needed.
type Options struct {
	// Config reaches the cluster's API server. Kubeconfig is the file that it was read
	// from; empty: the pod's own service account.
	Config     *rest.Config
	Kubeconfig string
	// Namespace is muster-edge's own; in it stands the kube-state-metrics that came with
	// the manifest.
	Namespace string
	// Hosts says how the host metrics of muster-edge's own DaemonSet are reached; nil:
	// there is none, and a node_exporter that the cluster has is scraped.
	Hosts func() *Hosts
	// VerifyKubelets has kubelets' certificates checked with the CA of Config: for clusters
	// in which they are signed by it, and don't sign their own.
	VerifyKubelets bool
	// TenantPods has annotated pods in tenants' namespaces scraped too.
	TenantPods bool
	// ScaleKubeStateMetrics is the Deployment in Namespace that runs only while the
	// cluster has no kube-state-metrics of its own; empty: there is none to run.
	ScaleKubeStateMetrics string
	// Apply puts the cluster's scrape configs into effect, a list in Prometheus' form.
	Apply func([]any) error
	// Every is how often to look; default one minute.
	Every  time.Duration
	Logger *slog.Logger
}

// Hosts is how the DaemonSet's host metrics are reached: by mutual TLS with one key
// pair that both ends hold.
type Hosts struct {
	Namespace  string
	ServerName string
	CertPEM    string
	KeyPEM     string
}

// Watcher keeps the scrape configs in step with the cluster. Safe for concurrent use.
type Watcher struct {
	opts Options
	kube kubernetes.Interface

	alone int // looks in a row without another kube-state-metrics; belongs to Run

	mu      sync.Mutex
	status  Status
	applied []any
}

// Status is what was found, and what is in the way.
type Status struct {
	// Looked is when the cluster was last looked at; zero: never yet.
	Looked time.Time `json:"looked,omitzero"`
	// Error of the last look; the scrape configs stay as they were.
	Error string `json:"error,omitempty"`
	// Found are the exporters that the cluster has, by job.
	Found []Place `json:"found"`
	// Lacks are what keeps a job from its targets.
	Lacks []Lack `json:"lacks,omitempty"`
}

// Place is where an exporter runs.
type Place struct {
	Job       string `json:"job"`
	Namespace string `json:"namespace"`
	Port      string `json:"port"` // the container port's name, or number
	Own       bool   `json:"own,omitempty"`

	ready bool
}

// Lack is why a job has no targets, or none that answer.
type Lack struct {
	Job     string `json:"job"`
	Reason  string `json:"reason"` // CamelCase, as of a condition
	Message string `json:"message"`
}

// standInAfter looks in a row without another kube-state-metrics ours is started.
const standInAfter = 3

// Reasons of a Lack.
const (
	Forbidden   = "Forbidden"   // the service account may not
	NotFound    = "NotFound"    // the cluster has none
	MetricsOff  = "MetricsOff"  // it is there, and serves none
	Unreachable = "Unreachable" // the API server
	NotApplied  = "NotApplied"  // the collector refused the scrape configs
)

// New does no I/O.
func New(o Options) (*Watcher, error) {
	if o.Config == nil || o.Apply == nil {
		return nil, errors.New("cluster: Config and Apply must be set")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Every = cmp.Or(max(o.Every, 0), time.Minute)
	kube, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return &Watcher{opts: o, kube: kube, status: Status{Found: []Place{}}}, nil
}

// Run looks at once and then every so often until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(w.opts.Every):
		}
	}
}

// Status returns what the last look found.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.status
	st.Found, st.Lacks = slices.Clone(st.Found), slices.Clone(st.Lacks)
	return st
}

func (w *Watcher) look(ctx context.Context) {
	cctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	st, err := w.find(cctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.opts.Logger.Warn("can't look for exporters in the cluster; the scrape configs stay as they are", "err", err)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.status.Error = err.Error()
		w.status.Lacks = append(slices.DeleteFunc(w.status.Lacks, func(l Lack) bool { return l.Reason == Unreachable }),
			Lack{Job: "all", Reason: Unreachable, Message: "the cluster's API server can't be asked what there is to scrape: " + err.Error()})
		return
	}
	var hosts *Hosts
	if w.opts.Hosts != nil {
		hosts = w.opts.Hosts()
	}
	jobs := w.jobs(st.Found, hosts)
	w.mu.Lock()
	same := reflect.DeepEqual(jobs, w.applied)
	w.mu.Unlock()
	if !same {
		if err := w.opts.Apply(jobs); err != nil {
			st.Lacks = append(st.Lacks, Lack{Job: "all", Reason: NotApplied, Message: "the scrape configs of the cluster are refused: " + err.Error()})
			jobs = nil
		}
	}
	w.scale(cctx, &st)
	w.mu.Lock()
	w.status, w.applied = st, jobs
	w.mu.Unlock()
}

// find looks which exporters there are, and what may not be read.
func (w *Watcher) find(ctx context.Context) (Status, error) {
	st := Status{Looked: time.Now(), Found: []Place{}}
	denied, err := w.denied(ctx)
	if err != nil {
		return st, err
	}
	for _, job := range slices.Sorted(maps.Keys(denied)) {
		st.Lacks = append(st.Lacks, Lack{job, Forbidden, "the service account may not " + denied[job] + "; apply the manifest again, with the feature metrics"})
	}
	if denied[jobPods] != "" {
		return st, nil
	}
	tenants, err := w.tenantNamespaces(ctx)
	if err != nil {
		return st, err
	}
	for _, e := range known {
		if e.job == jobNodes && w.opts.Hosts != nil {
			continue
		}
		place, there, err := w.place(ctx, &e, tenants)
		switch {
		case err != nil:
			return st, err
		case place != nil:
			st.Found = append(st.Found, *place)
		case there:
			st.Lacks = append(st.Lacks, Lack{e.job, MetricsOff, e.off})
		case e.missing != "":
			st.Lacks = append(st.Lacks, Lack{e.job, NotFound, e.missing})
		}
	}
	return st, nil
}

// place finds where an exporter runs: a namespace that is no tenant's, since a tenant's
// pod that calls itself kube-state-metrics could tell what it likes of the site. there
// tells that it runs and serves no metrics.
func (w *Watcher) place(ctx context.Context, e *exporter, tenants map[string]bool) (found *Place, there bool, err error) {
	for _, selector := range e.selectors {
		// From the API server's cache: a look must cost etcd nothing.
		pods, err := w.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: "0"})
		if err != nil {
			return nil, false, fmt.Errorf("list the pods %s: %w", selector, err)
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if p.Status.Phase != corev1.PodRunning || tenants[p.Namespace] {
				continue
			}
			there = true
			at := Place{Job: e.job, Namespace: p.Namespace, Port: e.portOf(p), Own: p.Namespace == w.opts.Namespace, ready: ready(p)}
			if at.Port != "" && (found == nil || at.better(found)) {
				found = &at
			}
		}
	}
	return found, there, nil
}

// better is a place whose pod is ready; of those, one that is not our own, which stands in
// only; of those, always the same.
func (p *Place) better(than *Place) bool {
	switch {
	case p.ready != than.ready:
		return p.ready
	case p.Own != than.Own:
		return than.Own
	}
	return p.Namespace < than.Namespace
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// TenantLabel marks the namespaces of tenants' workloads on a site.
const TenantLabel = "muster.dev/tenant"

func (w *Watcher) tenantNamespaces(ctx context.Context) (map[string]bool, error) {
	list, err := w.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: TenantLabel, ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list the tenants' namespaces: %w", err)
	}
	out := map[string]bool{}
	for i := range list.Items {
		out[list.Items[i].Name] = true
	}
	return out, nil
}

// denied asks what the service account may not do, by job.
func (w *Watcher) denied(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, need := range needs {
		for _, verb := range need.verbs {
			r, err := w.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: need.resource, Subresource: need.subresource}},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("ask what the service account may do: %w", err)
			}
			if r.Status.Allowed {
				continue
			}
			what := verb + " " + need.resource
			if need.subresource != "" {
				what += "/" + need.subresource
			}
			for _, job := range need.jobs {
				if out[job] == "" {
					out[job] = what
				}
			}
		}
	}
	return out, nil
}

// scale has the kube-state-metrics of the manifest run while the cluster has no other.
func (w *Watcher) scale(ctx context.Context, st *Status) {
	name := w.opts.ScaleKubeStateMetrics
	if name == "" || slices.ContainsFunc(st.Lacks, func(l Lack) bool { return l.Reason == Forbidden && l.Job == jobPods }) {
		return
	}
	// Another that restarts is gone for a moment: ours stands in for one that stays away.
	want := int32(1)
	if i := slices.IndexFunc(st.Found, func(p Place) bool { return p.Job == jobKubeStateMetrics }); i >= 0 && !st.Found[i].Own && st.Found[i].ready {
		want, w.alone = 0, 0
	} else if w.alone++; w.alone < standInAfter {
		return
	}
	deployments := w.kube.AppsV1().Deployments(w.opts.Namespace)
	s, err := deployments.GetScale(ctx, name, metav1.GetOptions{})
	if err == nil && s.Spec.Replicas == want {
		return
	}
	if err == nil {
		_, err = deployments.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, want), metav1.PatchOptions{FieldManager: "muster-edge"}, "scale")
	}
	switch {
	case err == nil:
		w.opts.Logger.Info("kube-state-metrics of the manifest is scaled", "replicas", want)
	case apierrors.IsNotFound(err): // the manifest was applied without it
	default:
		st.Lacks = append(st.Lacks, Lack{jobKubeStateMetrics, Forbidden, fmt.Sprintf("its Deployment %s/%s can't be scaled to %d: %v", w.opts.Namespace, name, want, err)})
	}
}

// Summary of the lacks in one line, and a reason; empty if there are none.
func (st Status) Summary() (reason, message string) {
	var list []string
	for _, l := range st.Lacks {
		if reason == "" || l.Reason == Forbidden {
			reason = l.Reason
		}
		list = append(list, l.Job+": "+l.Message)
	}
	return reason, strings.Join(list, "; ")
}
