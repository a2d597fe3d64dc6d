package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"muster.dev/muster/internal/workload"
)

// callTimeout bounds one call of the API server.
const callTimeout = 30 * time.Second

// config finds how to reach the site's API server.
func config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubernetes.kubeconfig: not in a pod of the cluster (%w); name a kubeconfig file", err)
		}
		return cfg, nil
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, fmt.Errorf("kubernetes.kubeconfig: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.kubeconfig: %s: %w", kubeconfig, err)
	}
	return cfg, nil
}

// cluster is the site's API server.
type cluster struct {
	cfg    *rest.Config
	dyn    dynamic.Interface
	meta   metadata.Interface
	core   corev1client.CoreV1Interface
	disco  discovery.DiscoveryInterface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	log    *slog.Logger

	ctx context.Context // of all reflectors; set by Run
	wg  sync.WaitGroup
}

func newCluster(cfg *rest.Config, log *slog.Logger) (*cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the API server's own fairness rules; calls are few at a time
	cfg.UserAgent = workload.FieldManager
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Timeout = 0 // of watches; each call has its own
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of the site's API server: %w", err)
	}
	c := &cluster{cfg: cfg, log: log}
	var errs [4]error
	c.dyn, errs[0] = dynamic.NewForConfigAndClient(cfg, client)
	c.meta, errs[1] = metadata.NewForConfigAndClient(cfg, client)
	proto := rest.CopyConfig(cfg)
	proto.ContentType, proto.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	c.core, errs[2] = corev1client.NewForConfigAndClient(proto, client)
	c.disco, errs[3] = discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("client of the site's API server: %w", err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.disco))
	return c, nil
}

// reflect keeps store what lw lists, until ctx ends.
func (c *cluster) reflect(ctx context.Context, name string, lw *cache.ListWatch, store cache.ReflectorStore) {
	// A reflector logs each failure to connect; that is told once, as a condition.
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{c.log.Handler()}))
	r := cache.NewReflectorWithOptions(lw, nil, store, cache.ReflectorOptions{Name: name, TypeDescription: name})
	c.wg.Go(func() { r.RunWithContext(ctx) })
}

// quiet passes on nothing but what is asked for by level debug.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a)} }
func (q quiet) WithGroup(g string) slog.Handler      { return quiet{q.Handler.WithGroup(g)} }

// version asks for the API server's version; it is also the question whether it is there.
func (c *cluster) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	b, err := c.disco.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(b, &v); err != nil || v.GitVersion == "" {
		return "", fmt.Errorf("what answers /version is no API server of Kubernetes: %.80q", b)
	}
	return v.GitVersion, nil
}

// resource finds the resource of a kind, among what the API server was last known to serve.
func (c *cluster) resource(gvk schema.GroupVersionKind, namespace string) (schema.GroupVersionResource, error) {
	m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	if namespaced := m.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (namespace != "") {
		if namespaced {
			return schema.GroupVersionResource{}, &refusal{reason: "Invalid", err: fmt.Errorf("%s wants a namespace", gvk.Kind)}
		}
		return schema.GroupVersionResource{}, &refusal{reason: "Invalid", err: fmt.Errorf("%s has no namespace on this site", gvk.Kind)}
	}
	return m.Resource, nil
}

func (c *cluster) of(gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dyn.Resource(gvr)
	}
	return c.dyn.Resource(gvr).Namespace(namespace)
}

// apply applies an object server-side; force takes fields over from others.
func (c *cluster) apply(ctx context.Context, gvr schema.GroupVersionResource, obj *unstructured.Unstructured, force, dryRun bool) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o := metav1.ApplyOptions{FieldManager: workload.FieldManager, Force: force}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return c.of(gvr, obj.GetNamespace()).Apply(ctx, obj.GetName(), obj, o)
}

// get returns the metadata of an object; nil: it is not there.
func (c *cluster) get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r := c.meta.Resource(gvr)
	get := r.Get
	if namespace != "" {
		get = r.Namespace(namespace).Get
	}
	obj, err := get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}

// remove deletes an object, if it is still the one that was seen; what it owns goes with it.
func (c *cluster) remove(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, l *live) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	background := metav1.DeletePropagationBackground
	err := c.of(gvr, namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &l.uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now
		return nil
	}
	return err
}

// refusal is why an item is not in effect, for a person. waiting: nothing is wrong with
// the item itself.
type refusal struct {
	waiting bool
	settled bool   // to try again is of no use
	reason  string // CamelCase
	err     error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func (r *refusal) state() workload.State {
	if r.waiting {
		return workload.Waiting
	}
	return workload.Failed
}

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, err: fmt.Errorf(format, args...)}
}

func wait(reason, format string, args ...any) *refusal {
	return &refusal{waiting: true, reason: reason, err: fmt.Errorf(format, args...)}
}

// errDown says that the API server can't be reached at all, so that nothing else need be
// tried.
var errDown = errors.New("the site's API server does not answer")

// brokeOff is errDown where nothing came back: it may be the one request.
type brokeOff struct{ cause error }

func (e *brokeOff) Error() string   { return errDown.Error() + ": " + e.cause.Error() }
func (e *brokeOff) Unwrap() []error { return []error{errDown, e.cause} }

const reasonDown, reasonUnknownKind = "ApiServerUnreachable", "UnknownKind"

// explain makes a refusal of what a call returned, or errDown.
func explain(err error, gvk schema.GroupVersionKind, version string) error {
	var already *refusal
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &already), errors.Is(err, errDown):
		return err
	case meta.IsNoMatchError(err):
		return unknownKind(gvk, version)
	case errors.Is(err, context.DeadlineExceeded): // this call's: whether nothing answers at all, the probe tells
		return wait("ApiServerTimeout", "the site's API server did not answer within %s", callTimeout)
	case !errors.As(err, &status):
		return &brokeOff{err}
	}
	s := status.Status()
	switch {
	case s.Code == http.StatusUnauthorized:
		return fmt.Errorf("%w: it refuses the agent's credentials: %s", errDown, s.Message)
	case s.Code == http.StatusNotFound && s.Details != nil && s.Details.Kind == "namespaces":
		return wait(reasonNamespace, "%s", s.Message)
	case s.Code == http.StatusNotFound:
		return unknownKind(gvk, version)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return wait("NamespaceTerminating", "its namespace is being deleted on the site")
	case s.Code == http.StatusRequestEntityTooLarge,
		// What etcd says of an object that is applied comes as it is, without a reason.
		s.Code == http.StatusInternalServerError && strings.Contains(s.Message, "etcdserver: request is too large"):
		return refuse("TooLarge", "the site's API server says that it is too large: %s", s.Message)
	case s.Code == http.StatusInternalServerError && strings.Contains(s.Message, "failed to create typed patch object"): // no fault of the server's
		return refuse("Invalid", "the site's Kubernetes (%s) does not take it: %s", version, s.Message)
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, "status unknown for quota"):
		return wait("QuotaNotCounted", "the site has not counted a new quota yet: %s", s.Message)
	case s.Code == http.StatusConflict, s.Code == http.StatusTooManyRequests, s.Code >= 500:
		return wait("ApiServer"+orWord(string(s.Reason), "Error"), "the site's API server: %s", s.Message)
	default:
		return refuse(orWord(string(s.Reason), "Refused"), "the site's API server: %s", s.Message)
	}
}

func unknownKind(gvk schema.GroupVersionKind, version string) error {
	what := "what brings it"
	if strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io") {
		what = fmt.Sprintf("the CustomResourceDefinition of %s, with the version %s,", gvk.GroupKind(), gvk.Version)
	}
	return refuse(reasonUnknownKind, "the site's Kubernetes (%s) does not know %s of %s; install %s there, and it is applied", version, gvk.Kind, gvk.GroupVersion(), what)
}
