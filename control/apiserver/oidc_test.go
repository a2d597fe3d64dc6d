package apiserver_test

import (
	"log/slog"
	"strings"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// Whatever an identity provider calls its users and groups, none of them is one of
// Kubernetes' or Muster's own.
func TestProvidersNamesAreNotOurs(t *testing.T) {
	kubeapi.Start(t)
	for _, who := range [][]string{
		{"alice", "system:masters"}, {"alice", "muster:system"}, {"muster:control", "muster:tenant:acme:admin"}, {"system:apiserver", "system:nodes"}, {"muster:admin"},
	} {
		k := kubernetes.NewForConfigOrDie(kubeapi.As(t, who[0], who[1:]...))
		me, err := k.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authnv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%v: %v", who, err)
			continue
		}
		if u := me.Status.UserInfo; u.Username != kubeapi.Prefix+who[0] {
			t.Errorf("%v is %s", who, u.Username)
		}
		for _, g := range me.Status.UserInfo.Groups {
			if g != "system:authenticated" && !strings.HasPrefix(g, kubeapi.Prefix) {
				t.Errorf("%v is in %s", who, g)
			}
		}
		if _, err := k.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%v may read secrets: %v", who, err)
		}
	}
}

func TestOIDCWantsPrefixes(t *testing.T) {
	for _, o := range []apiserver.OIDC{
		{UsernamePrefix: "oidc:"}, {GroupsPrefix: "oidc:"}, {UsernamePrefix: "oidc:", GroupsPrefix: "-"}, {UsernamePrefix: "oidc:", GroupsPrefix: "system:"}, {UsernamePrefix: "muster", GroupsPrefix: "oidc:"},
	} {
		o.IssuerURL, o.ClientID = "https://idp.example.com", "muster"
		if _, err := apiserver.Start(t.Context(), apiserver.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", OIDC: o, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "OIDC") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
