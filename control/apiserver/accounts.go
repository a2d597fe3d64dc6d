package apiserver

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	accountcontrollers "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// accounts gives each namespace its service account "default" and the CAs by which its
// clients know this server, in the ConfigMap kube-root-ca.crt, and fills Secrets of type
// kubernetes.io/service-account-token.
type accounts struct {
	key string // file of the key that signs tokens
	// trust returns the CAs as PEM, and what is closed when others are to be trusted.
	trust func() (pem []byte, changed <-chan struct{})
	log   *slog.Logger
}

// run ends with ctx.
func (a accounts) run(ctx context.Context, kube kubernetes.Interface) {
	for ctx.Err() == nil {
		ca, changed := a.trust()
		// The stock controllers know one bundle all their life.
		once, cancel := context.WithCancel(ctx)
		if err := a.runWith(once, kube, ca); err != nil {
			a.log.Error("service accounts get no tokens", "err", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		cancel()
	}
}

// runWith starts the controllers, which end with ctx.
func (a accounts) runWith(ctx context.Context, kube kubernetes.Interface, ca []byte) error {
	key, err := keyutil.PrivateKeyFromFile(a.key)
	if err != nil {
		return err
	}
	sign, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return err
	}
	only := func(field, value string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(withoutManagedFields), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, value).String()
		}))
	}
	all := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(withoutManagedFields))
	secrets, maps := only("type", string(corev1.SecretTypeServiceAccountToken)), only("metadata.name", rootcacertpublisher.RootCACertConfigMapName)

	log := klog.FromContext(ctx)
	defaults, err := accountcontrollers.NewServiceAccountsController(log, all.Core().V1().ServiceAccounts(), all.Core().V1().Namespaces(), kube, accountcontrollers.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("service accounts: %w", err)
	}
	tokens, err := accountcontrollers.NewTokensController(log, all.Core().V1().ServiceAccounts(), secrets.Core().V1().Secrets(), kube, accountcontrollers.TokensControllerOptions{TokenGenerator: sign, RootCA: ca})
	if err != nil {
		return fmt.Errorf("tokens of service accounts: %w", err)
	}
	publish, err := rootcacertpublisher.NewPublisher(maps.Core().V1().ConfigMaps(), all.Core().V1().Namespaces(), kube, ca)
	if err != nil {
		return fmt.Errorf("CA of service accounts: %w", err)
	}
	for _, f := range []informers.SharedInformerFactory{all, secrets, maps} {
		f.Start(ctx.Done())
	}
	go defaults.Run(ctx, 1)
	go tokens.Run(ctx, 1)
	go publish.Run(ctx, 1)
	return nil
}
