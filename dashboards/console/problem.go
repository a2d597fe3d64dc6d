package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// problem is an error as users see it: RFC 9457, application/problem+json.
type problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Errors   []fieldError `json:"errors,omitempty"`
	// Tenants that have a site of the wanted name, when it is not unique.
	Tenants []string `json:"tenants,omitempty"`

	retryAfter int   // seconds; 0: no header
	cause      error // ours, for the log
}

// fieldError names a field of the request and what is wrong with it.
type fieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.Title + ": " + p.cause.Error()
	}
	return p.Title + ": " + p.Detail
}

func (p *problem) Unwrap() error { return p.cause }

// The types of problems; programs tell them apart by these.
const (
	typeInvalid       = "urn:muster:problem:invalid"
	typeUnauthorized  = "urn:muster:problem:unauthenticated"
	typeForbidden     = "urn:muster:problem:forbidden"
	typeCrossOrigin   = "urn:muster:problem:cross-origin"
	typeNotFound      = "urn:muster:problem:not-found"
	typeMethod        = "urn:muster:problem:method-not-allowed"
	typeConflict      = "urn:muster:problem:conflict"
	typeAmbiguous     = "urn:muster:problem:ambiguous-site"
	typeTooLarge      = "urn:muster:problem:too-large"
	typeMediaType     = "urn:muster:problem:media-type"
	typeLimited       = "urn:muster:problem:too-many-requests"
	typeInternal      = "urn:muster:problem:internal"
	typeUnavailable   = "urn:muster:problem:unavailable"
	problemMediaType  = "application/problem+json"
	secondsUntilRetry = 5
)

func newProblem(status int, typ, format string, args ...any) *problem {
	return &problem{Type: typ, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// invalid says which field of the request is wrong and how to put it right.
func invalid(field, format string, args ...any) *problem {
	return invalidFields([]fieldError{{Field: field, Detail: fmt.Sprintf(format, args...)}})
}

func invalidFields(errs []fieldError) *problem {
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = e.Field + ": " + e.Detail
	}
	p := newProblem(http.StatusBadRequest, typeInvalid, "%s", strings.Join(lines, "; "))
	p.Errors = errs
	return p
}

func unauthenticated(detail string) *problem {
	return newProblem(http.StatusUnauthorized, typeUnauthorized, "%s", detail)
}

func forbidden(format string, args ...any) *problem {
	return newProblem(http.StatusForbidden, typeForbidden, format, args...)
}

func notFound(format string, args ...any) *problem {
	return newProblem(http.StatusNotFound, typeNotFound, format, args...)
}

// unavailable blames a part behind the console; cause goes to the log.
func unavailable(cause error, format string, args ...any) *problem {
	p := newProblem(http.StatusServiceUnavailable, typeUnavailable, format, args...)
	p.retryAfter, p.cause = secondsUntilRetry, cause
	return p
}

// asProblem turns any error of a handler into a problem. what says what was being
// done, for errors of the API server.
func asProblem(err error, what string) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return newProblem(http.StatusRequestEntityTooLarge, typeTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fromStatus(err, status.Status(), what)
	}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) {
		return unavailable(err, "%s: the API server doesn't answer; it may be starting", what)
	}
	p = newProblem(http.StatusInternalServerError, typeInternal, "%s failed; the log has the cause", what)
	p.cause = err
	return p
}

// fromStatus passes on what the API server said to the user in whose name we asked.
func fromStatus(err error, s metav1.Status, what string) *problem {
	switch {
	case apierrors.IsForbidden(err):
		return forbidden("%s: %s", what, s.Message)
	case apierrors.IsNotFound(err):
		return notFound("%s: %s", what, s.Message)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsGone(err):
		return newProblem(http.StatusConflict, typeConflict, "%s: %s", what, s.Message)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		if s.Details == nil || len(s.Details.Causes) == 0 {
			return newProblem(http.StatusBadRequest, typeInvalid, "%s: %s", what, s.Message)
		}
		var errs []fieldError
		for _, cause := range s.Details.Causes {
			errs = append(errs, fieldError{Field: cause.Field, Detail: cause.Message})
		}
		return invalidFields(errs)
	case apierrors.IsTooManyRequests(err):
		p := newProblem(http.StatusTooManyRequests, typeLimited, "%s: the API server asks to slow down", what)
		p.retryAfter = secondsUntilRetry
		if d, ok := apierrors.SuggestsClientDelay(err); ok && d > 0 {
			p.retryAfter = d
		}
		return p
	case apierrors.IsUnauthorized(err):
		return unavailable(err, "%s: the API server refuses the console's own identity; an administrator must renew it", what)
	default:
		return unavailable(err, "%s: the API server can't do it now", what)
	}
}

// write sends the problem, unless the answer has begun.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	h.Set("Content-Type", problemMediaType)
	h.Set("Cache-Control", "no-store")
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
