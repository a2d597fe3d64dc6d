package vk8s

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// recheckEvery is how often it is looked whether who began a session may still have it. The API
// server believes a token for ten more seconds.
const recheckEvery = 10 * time.Second

// CutAnnotation, of a session's line in the audit log, says why it was cut.
const CutAnnotation = "muster.dev/session-cut"

// sessions are the subresources of pods that last.
var sessions = []string{"log", "exec", "attach", "portforward"}

type credentialsKey struct{}

// Keep stands before the stock chain of handlers, which takes from a request whose it is: of one
// that begins a session it is kept, for the session to be asked again.
func (m *Mount) Keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if under(req.URL) {
			if c, err := parse(req.URL); err == nil && lasts(c) {
				req = req.WithContext(context.WithValue(req.Context(), credentialsKey{}, req.Header.Clone()))
			}
		}
		next.ServeHTTP(w, req)
	})
}

// guard lets a session of a pod begin, and ends its context when who began it is nobody any
// more, or another, or the right to it is withdrawn. end is to be called when it is over.
func guard(s Stock, req *http.Request, c call, every time.Duration) (_ context.Context, end func(), err error) {
	attributes, err := filters.GetAuthorizerAttributes(req.Context())
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	verbs := []string{attributes.GetVerb()}
	if c.sub != "log" && attributes.GetVerb() != "create" {
		// A WebSocket begins as a GET, and may do what a POST may.
		verbs = append(verbs, "create")
		if err := allowed(req.Context(), s, attributes, attributes.GetUser(), "create"); err != nil {
			return nil, nil, err
		}
	}
	header, _ := req.Context().Value(credentialsKey{}).(http.Header)
	again := &http.Request{Method: req.Method, URL: req.URL, Host: req.Host, RemoteAddr: req.RemoteAddr, TLS: req.TLS, Header: header}
	info, _ := request.RequestInfoFrom(req.Context())
	still := func(ctx context.Context) error {
		// Of the request's own context the audit log would hear of it.
		ctx, cancel := context.WithTimeout(request.WithRequestInfo(ctx, info), recheckTime)
		defer cancel()
		now := again.Clone(ctx)
		u, err := s.Again(now)
		if err != nil {
			return fmt.Errorf("its credentials count no more: %w", err)
		}
		if was := attributes.GetUser(); u.GetName() != was.GetName() || u.GetUID() != was.GetUID() {
			return fmt.Errorf("its credentials are those of %s by now", u.GetName())
		}
		return allowed(ctx, s, attributes, u, verbs...)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	background, stop := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-background.Done():
				return
			case <-tick.C:
				if err := still(background); err != nil && background.Err() == nil {
					cancel(err)
					return
				}
			}
		}
	})
	return ctx, func() {
		stop()
		looking.Wait()
		if why := context.Cause(ctx); why != nil && req.Context().Err() == nil {
			audit.AddAuditAnnotation(req.Context(), CutAnnotation, why.Error())
		}
		cancel(nil)
	}, nil
}

// recheckTime bounds one look.
const recheckTime = 10 * time.Second

// can are the attributes of a request as if another had made it, with another verb.
type can struct {
	authorizer.Attributes
	user user.Info
	verb string
}

// GetUser implements authorizer.Attributes.
func (c can) GetUser() user.Info { return c.user }

// GetVerb implements authorizer.Attributes.
func (c can) GetVerb() string { return c.verb }

func allowed(ctx context.Context, s Stock, a authorizer.Attributes, u user.Info, verbs ...string) error {
	for _, verb := range verbs {
		d, reason, err := s.Authorizer.Authorize(ctx, can{a, u, verb})
		if err != nil && d != authorizer.DecisionAllow {
			reason = err.Error()
		}
		if d != authorizer.DecisionAllow {
			return apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource() + "/" + a.GetSubresource()}, a.GetName(), fmt.Errorf("user %q may not %s it: %s", u.GetName(), verb, reason))
		}
	}
	return nil
}

func lasts(c call) bool { return c.gvr.Resource == "pods" && slices.Contains(sessions, c.sub) }
