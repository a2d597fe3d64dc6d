package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/quota"
)

const quotaPluginName = "MusterQuota"

// follow reads what is in etcd and keeps counting until ctx ends.
func follow(ctx context.Context, endpoints []string, o Etcd, ledger *quota.Ledger, log *slog.Logger) error {
	cfg := clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()}
	if o.CertFile+o.CAFile != "" {
		tls, err := transport.TLSInfo{CertFile: o.CertFile, KeyFile: o.KeyFile, TrustedCAFile: o.CAFile}.ClientConfig()
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		cfg.TLS = tls
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	revision, err := ledger.Load(ctx, c)
	if err != nil {
		_ = c.Close()
		return err
	}
	go func() {
		defer c.Close()
		ledger.Follow(ctx, c, revision, log)
	}()
	return nil
}

// quotas refuses writes that a tenant has no room for.
type quotas struct{ ledger *quota.Ledger }

var _ admission.ValidationInterface = quotas{}

// Handles implements admission.Interface.
func (quotas) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// stored are the subresources whose update is one of the object itself. Others, such
// as a token or an eviction, store nothing or next to nothing.
var stored = map[string]bool{"": true, "status": true, "ephemeralcontainers": true, "resize": true}

// Validate implements admission.ValidationInterface.
func (q quotas) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	create := a.GetOperation() == admission.Create
	if a.GetNamespace() == "" || !stored[a.GetSubresource()] || (create && a.GetSubresource() != "") {
		return nil
	}
	site := a.GetKind().GroupKind() == v1alpha1.GroupVersion.WithKind("Site").GroupKind()
	w := quota.Write{Resource: a.GetResource().Resource, Namespace: a.GetNamespace(), Name: a.GetName(), Create: create, DryRun: a.IsDryRun(), Trusted: trusted(a.GetUserInfo()), Paid: paid(ctx)}
	if w.Trusted && !site {
		return nil // counted when it is stored
	}
	w.Resource = storedAs(a.GetResource().GroupResource())
	if m, err := meta.Accessor(a.GetObject()); err == nil && m.GetName() != "" {
		w.Name = m.GetName()
	}
	w.New, w.Old = size(a, a.GetObject()), size(a, a.GetOldObject())
	if site {
		w.Is, w.Was = siteOf(a.GetObject()), siteOf(a.GetOldObject())
	}
	var over *quota.Exceeded
	if err := q.ledger.Admit(w); errors.As(err, &over) {
		return refusal(a.GetResource().GroupResource(), a.GetName(), over)
	}
	return nil
}

// storedAs is how the keys of etcd name a resource.
func storedAs(gr schema.GroupResource) string {
	if gr.Group == v1alpha1.GroupVersion.Group || !legacyscheme.Scheme.IsGroupRegistered(gr.Group) {
		return gr.Group + "/" + gr.Resource
	}
	return gr.Resource
}

// refusal is Forbidden, as Kubernetes' own quota answers, or, where waiting helps,
// TooManyRequests. The cause tells programs what it is.
func refusal(gr schema.GroupResource, name string, over *quota.Exceeded) error {
	err := apierrors.NewForbidden(gr, name, over)
	if over.Retry > 0 {
		err = apierrors.NewTooManyRequests(over.Error(), over.Retry)
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1alpha1.CauseQuotaExceeded, Message: over.Error(), Field: over.Quota})
	return err
}

// size of an object in etcd, about: built-in kinds are stored more tightly than the
// JSON that is measured here. The watch brings the true figure.
func size(a admission.Attributes, obj runtime.Object) int64 {
	if obj == nil {
		return 0
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if u == nil {
			return 0
		}
		b, err := json.Marshal(u.Object)
		if err != nil {
			return 0
		}
		return int64(len(b))
	}
	b, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(a.GetKind().GroupVersion()), obj)
	if err != nil {
		return 0
	}
	return int64(len(b))
}

func siteOf(obj runtime.Object) *quota.Site {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return nil
	}
	var s quota.Site
	s.Approved, _, _ = unstructured.NestedBool(u.Object, "spec", "approved")
	s.Decommissioned, _, _ = unstructured.NestedBool(u.Object, "spec", "decommissioned")
	return &s
}
