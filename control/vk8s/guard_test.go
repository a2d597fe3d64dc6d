package vk8s

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Whoever has left the group that had the right, is another one, or nobody any more, has no
// session at the next look.
func TestSessionsAreOfWhoTheirCallersAreNow(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"ops"}}
	for name, c := range map[string]struct {
		now user.Info
		err error
		cut bool
	}{
		"the same":           {now: ann},
		"in a group more":    {now: &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"ops", "dev"}}},
		"left the group":     {now: &user.DefaultInfo{Name: "ann", UID: "1", Groups: []string{"dev"}}, cut: true},
		"another":            {now: &user.DefaultInfo{Name: "bob", UID: "2", Groups: []string{"ops"}}, cut: true},
		"of the same name":   {now: &user.DefaultInfo{Name: "ann", UID: "3", Groups: []string{"ops"}}, cut: true},
		"not known any more": {err: errors.New("Unauthorized"), cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, failed := user.Info(ann), error(nil)
				s := Stock{
					Again: func(*http.Request) (user.Info, error) { return now, failed },
					Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
						if slices.Contains(a.GetUser().GetGroups(), "ops") {
							return authorizer.DecisionAllow, "", nil
						}
						return authorizer.DecisionNoOpinion, "", nil
					}),
				}
				req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", Resource: "pods", Subresource: "exec", Namespace: "n", Name: "p"}
				req = req.WithContext(request.WithUser(request.WithRequestInfo(req.Context(), info), ann))
				ctx, end, err := guard(s, req, call{sub: "exec"}, recheckEvery)
				if err != nil {
					t.Fatal(err)
				}
				defer end()
				time.Sleep(3 * recheckEvery)
				synctest.Wait()
				if ctx.Err() != nil {
					t.Fatalf("it is cut while nothing has changed: %v", context.Cause(ctx))
				}
				now, failed = c.now, c.err
				time.Sleep(recheckEvery)
				synctest.Wait()
				if cut := ctx.Err() != nil; cut != c.cut {
					t.Errorf("cut: %v, want %v: %v", cut, c.cut, context.Cause(ctx))
				}
			})
		})
	}
}
