package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// rights is what a plugin embeds that asks whether who creates or updates an object has a
// right beyond that; it implements WantsAuthorizer.
type rights struct {
	*admission.Handler
	plugin     string
	authorizer authorizer.Authorizer
}

func rightsOf(plugin string) rights {
	return rights{Handler: admission.NewHandler(admission.Create, admission.Update), plugin: plugin}
}

// SetAuthorizer implements WantsAuthorizer.
func (r *rights) SetAuthorizer(a authorizer.Authorizer) { r.authorizer = a }

// ValidateInitialization implements admission.InitializationValidator.
func (r *rights) ValidateInitialization() error {
	if r.authorizer == nil {
		return fmt.Errorf("%s: no authorizer", r.plugin)
	}
	return nil
}

// may tells whether who sends the request may do this to an object of its namespace. A role
// that can't be read grants nothing.
func (r *rights) may(ctx context.Context, a admission.Attributes, verb string, resource schema.GroupVersionResource, name string) bool {
	decision, _, _ := r.authorizer.Authorize(ctx, authorizer.AttributesRecord{User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), Name: name,
		APIGroup: resource.Group, APIVersion: resource.Version, Resource: resource.Resource, ResourceRequest: true})
	return decision == authorizer.DecisionAllow
}
