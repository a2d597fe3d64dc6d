package apiserver

import (
	"fmt"

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
