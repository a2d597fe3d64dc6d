package apiserver

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericinitializer "k8s.io/apiserver/pkg/admission/initializer"

	"muster.dev/muster/control/api/v1alpha1"
)

const gateTokensPluginName = "MusterGateTokens"

// gateTokens asks who names a Secret for a gate's webhook for the right to read it: control
// reads it and sends it to the address beside it, which the same person wrote. Whoever
// writes the rest of such an object needs no such right, and neither does who has in a Rollout
// the webhook of a RolloutPolicy beside it, as its Rollouts must.
type gateTokens struct {
	rights
	rollouts *rollouts // knows the policies
}

var (
	_ admission.ValidationInterface      = &gateTokens{}
	_ genericinitializer.WantsAuthorizer = &gateTokens{}
)

func registerGateTokens(p *admission.Plugins, r *rollouts) {
	p.Register(gateTokensPluginName, func(io.Reader) (admission.Interface, error) {
		return &gateTokens{rightsOf(gateTokensPluginName), r}, nil
	})
}

// Validate implements admission.ValidationInterface.
func (g *gateTokens) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().Group != v1alpha1.GroupVersion.Group || a.GetSubresource() != "" || trusted(a.GetUserInfo()) {
		return nil
	}
	before := tokensOf(a.GetOldObject())
	for hook := range tokensOf(a.GetObject()) {
		if before[hook] || g.may(ctx, a, "get", corev1.SchemeGroupVersion.WithResource("secrets"), hook.secret) {
			continue
		}
		ofPolicy, err := g.ofPolicy(ctx, a, hook)
		if err != nil {
			return err
		}
		if !ofPolicy {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
				fmt.Errorf("a gate's webhook.tokenSecret: Secret %s would be sent to %s, and you may not read it: ask a tenant administrator", hook.secret, hook.url))
		}
	}
	return nil
}

// ofPolicy tells whether a Rollout has a webhook that a RolloutPolicy of its namespace has.
func (g *gateTokens) ofPolicy(ctx context.Context, a admission.Attributes, hook tokenHook) (bool, error) {
	if !ofRollout(a) || g.rollouts.client.Load() == nil {
		return false, nil
	}
	there, err := g.rollouts.policies(ctx, a.GetNamespace())
	return slices.ContainsFunc(there.list, func(p v1alpha1.RolloutPolicy) bool {
		return slices.ContainsFunc(p.Spec.Gates, func(gate v1alpha1.RolloutGate) bool {
			return gate.Webhook != nil && hook == tokenHook{gate.Webhook.URL, gate.Webhook.TokenSecret}
		})
	}), err
}

// tokenHook is a Secret, and where its token goes.
type tokenHook struct{ url, secret string }

// tokensOf are those of all gates of an object, wherever its kind has them.
func tokensOf(obj runtime.Object) map[tokenHook]bool {
	out := map[tokenHook]bool{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			if hook, ok := v["webhook"].(map[string]any); ok {
				url, _ := hook["url"].(string)
				if secret, _ := hook["tokenSecret"].(string); secret != "" {
					out[tokenHook{url, secret}] = true
				}
			}
			for _, x := range v {
				walk(x)
			}
		}
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil {
		switch u.GetKind() {
		case "Rollout", "RolloutPolicy", "GateCheck":
			walk(u.Object["spec"])
		}
	}
	return out
}
