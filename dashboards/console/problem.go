package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/internal/wire"
)

// problem is an error as users see it, with what they don't.
type problem struct {
	wire.Problem
	cause error // ours, for the log
}

func (p *problem) Error() string {
	if p.cause != nil {
		return p.Title + ": " + p.cause.Error()
	}
	return p.Title + ": " + p.Detail
}

func (p *problem) Unwrap() error { return p.cause }

const secondsUntilRetry = 5

func newProblem(status int, typ, format string, args ...any) *problem {
	return &problem{Problem: wire.Problem{Type: typ, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}}
}

// invalid says which field of the request is wrong and how to put it right.
func invalid(field, format string, args ...any) *problem {
	return invalidFields([]wire.FieldError{{Field: field, Detail: fmt.Sprintf(format, args...)}})
}

func invalidFields(errs []wire.FieldError) *problem { return &problem{Problem: *wire.Invalid(errs...)} }

func unauthenticated(detail string) *problem {
	return newProblem(http.StatusUnauthorized, wire.ProblemUnauthorized, "%s", detail)
}

func forbidden(format string, args ...any) *problem {
	return newProblem(http.StatusForbidden, wire.ProblemForbidden, format, args...)
}

func notFound(format string, args ...any) *problem {
	return newProblem(http.StatusNotFound, wire.ProblemNotFound, format, args...)
}

// unavailable blames a part behind the console; cause goes to the log.
func unavailable(cause error, format string, args ...any) *problem {
	p := newProblem(http.StatusServiceUnavailable, wire.ProblemUnavailable, format, args...)
	p.RetryAfter, p.cause = secondsUntilRetry, cause
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
		return newProblem(http.StatusRequestEntityTooLarge, wire.ProblemTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return fromStatus(err, status.Status(), what)
	}
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) {
		return unavailable(err, "%s: the API server doesn't answer; it may be starting", what)
	}
	p = newProblem(http.StatusInternalServerError, wire.ProblemInternal, "%s failed; the log has the cause", what)
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
		return newProblem(http.StatusConflict, wire.ProblemConflict, "%s: %s", what, s.Message)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		if s.Details == nil || len(s.Details.Causes) == 0 {
			return newProblem(http.StatusBadRequest, wire.ProblemInvalid, "%s: %s", what, s.Message)
		}
		var errs []wire.FieldError
		for _, cause := range s.Details.Causes {
			errs = append(errs, wire.FieldError{Field: cause.Field, Detail: cause.Message})
		}
		return invalidFields(errs)
	case apierrors.IsTooManyRequests(err):
		p := newProblem(http.StatusTooManyRequests, wire.ProblemLimited, "%s: the API server asks to slow down", what)
		p.RetryAfter = secondsUntilRetry
		if d, ok := apierrors.SuggestsClientDelay(err); ok && d > 0 {
			p.RetryAfter = d
		}
		return p
	case apierrors.IsUnauthorized(err):
		return unavailable(err, "%s: the API server refuses the console's own identity; an administrator must renew it", what)
	case apierrors.IsServiceUnavailable(err) && s.Message != "":
		return unavailable(err, "%s: %s", what, s.Message) // such as a site that is not connected
	default:
		return unavailable(err, "%s: the API server can't do it now", what)
	}
}

// write sends the problem, unless the answer has begun.
func (p *problem) write(w http.ResponseWriter) {
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	p.Write(w)
}
