package vk8s

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
)

// recheckEvery is how long somebody whose right was withdrawn can go on with a session.
const recheckEvery = 10 * time.Second

// sessions are the subresources of pods that last.
var sessions = []string{"log", "exec", "attach", "portforward"}

// guard lets a session of a pod begin, and ends its context when the right to it is
// withdrawn. end is to be called when it is over.
func guard(s Stock, req *http.Request, c call, every time.Duration) (_ context.Context, end func(), err error) {
	attributes, err := filters.GetAuthorizerAttributes(req.Context())
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	must := []authorizer.Attributes{attributes}
	if c.sub != "log" && attributes.GetVerb() != "create" {
		// A WebSocket begins as a GET, and may do what a POST may.
		must = append(must, creates{attributes})
		if err := allowed(req.Context(), s, must); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancel(req.Context())
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if allowed(ctx, s, must) != nil {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel, nil
}

// creates are the attributes of a request as if it were a POST.
type creates struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (creates) GetVerb() string { return "create" }

func allowed(ctx context.Context, s Stock, must []authorizer.Attributes) error {
	for _, a := range must {
		d, reason, err := s.Authorizer.Authorize(ctx, a)
		if err != nil && d != authorizer.DecisionAllow {
			reason = err.Error()
		}
		if d != authorizer.DecisionAllow {
			return apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource() + "/" + a.GetSubresource()}, a.GetName(), fmt.Errorf("user %q may not %s it: %s", a.GetUser().GetName(), a.GetVerb(), reason))
		}
	}
	return nil
}

func lasts(c call) bool { return c.gvr.Resource == "pods" && slices.Contains(sessions, c.sub) }
