package apiserver

import (
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
)

// Why a CertificateSigningRequest for one of Kubernetes' own signers is refused.
const (
	notSigned        = "NotSignedHere"
	notSignedMessage = "Kubernetes' own signers don't run here, and a client certificate would open nothing: " +
		"sites get their certificates by `muster token create`, programs a token of a service account, people log in with the identity provider"
)

// refuseCertificates returns what refuses requests for Kubernetes' own signers, which
// nobody would ever answer, and what removes those that are done. Requests for another
// signer are left to whoever runs it.
//
// They are not signed because nothing here would accept the certificate: the API server
// trusts no client CA, there are no kubelets, and a signer would be a second authority
// beside the fleet's, whose certificates are bound to sites.
func (c *controllers) refuseCertificates() (refuse, clean func(context.Context)) {
	requests := c.typed.Certificates().V1().CertificateSigningRequests()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	add := func(o any) {
		if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok && refused(r) != "" {
			queue.Add(r.Name)
		}
	}
	_, err := requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }})
	utilruntime.Must(err) // only of an informer that was stopped
	old := cleaner.NewCSRCleanerController(c.kube.CertificatesV1().CertificateSigningRequests(), requests)

	refuse = func(ctx context.Context) {
		defer context.AfterFunc(ctx, queue.ShutDown)()
		for {
			name, over := queue.Get()
			if over {
				return
			}
			r, err := requests.Lister().Get(name)
			if err == nil {
				err = c.refuse(ctx, r.DeepCopy())
			}
			switch {
			case err == nil, apierrors.IsNotFound(err):
				queue.Forget(name)
			case ctx.Err() == nil:
				if !apierrors.IsConflict(err) {
					utilruntime.HandleErrorWithContext(ctx, err, "Refuse a certificate signing request", "name", name)
				}
				queue.AddRateLimited(name)
			}
			queue.Done(name)
		}
	}
	return refuse, func(ctx context.Context) { old.Run(ctx, 1) }
}

// refused is the condition by which the request is to be refused: one that somebody
// approved can't be denied any more, it failed. "": it is not for us, or it is done.
func refused(r *certificatesv1.CertificateSigningRequest) certificatesv1.RequestConditionType {
	has := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	switch {
	case !strings.HasPrefix(r.Spec.SignerName, "kubernetes.io/"), len(r.Status.Certificate) > 0, has(certificatesv1.CertificateDenied), has(certificatesv1.CertificateFailed):
		return ""
	case has(certificatesv1.CertificateApproved):
		return certificatesv1.CertificateFailed
	}
	return certificatesv1.CertificateDenied
}

func (c *controllers) refuse(ctx context.Context, r *certificatesv1.CertificateSigningRequest) error {
	t := refused(r)
	if t == "" {
		return nil
	}
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: notSigned, Message: notSignedMessage, LastUpdateTime: metav1.Now()})
	api := c.kube.CertificatesV1().CertificateSigningRequests()
	var err error
	if t == certificatesv1.CertificateFailed {
		_, err = api.UpdateStatus(ctx, r, metav1.UpdateOptions{})
	} else {
		_, err = api.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{})
	}
	return err
}
