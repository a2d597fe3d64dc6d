package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers in which the console tells the roles behind it who asks, after it has found
// out; the roles believe them, so nobody else may reach these.
const (
	// TenantHeader is the one tenant that a log query is for.
	TenantHeader = "X-Muster-Tenant"
	// TenantsHeader are the tenants that the user may read, separated by commas, or
	// AllTenants.
	TenantsHeader = "X-Muster-Tenants"
	// UserHeader is the user's name, for what is signed with it.
	UserHeader = "X-Muster-User"
	// OrgHeader is the tenant that a push or a query at the metric store is for.
	OrgHeader  = "X-Scope-OrgID"
	AllTenants = "*"
)

// ProblemMediaType is that of a Problem.
const ProblemMediaType = "application/problem+json"

// The types of problems; programs tell them apart by these.
const (
	ProblemInvalid       = "urn:muster:problem:invalid"
	ProblemUnauthorized  = "urn:muster:problem:unauthenticated"
	ProblemForbidden     = "urn:muster:problem:forbidden"
	ProblemCrossOrigin   = "urn:muster:problem:cross-origin"
	ProblemNotFound      = "urn:muster:problem:not-found"
	ProblemMethod        = "urn:muster:problem:method-not-allowed"
	ProblemConflict      = "urn:muster:problem:conflict"
	ProblemAmbiguousSite = "urn:muster:problem:ambiguous-site"
	ProblemTooLarge      = "urn:muster:problem:too-large"
	ProblemMediaKind     = "urn:muster:problem:media-type"
	ProblemLimited       = "urn:muster:problem:too-many-requests"
	ProblemInternal      = "urn:muster:problem:internal"
	ProblemUnavailable   = "urn:muster:problem:unavailable"
)

var problemTypes = map[int]string{
	http.StatusUnauthorized: ProblemUnauthorized, http.StatusForbidden: ProblemForbidden, http.StatusNotFound: ProblemNotFound,
	http.StatusMethodNotAllowed: ProblemMethod, http.StatusConflict: ProblemConflict, http.StatusRequestEntityTooLarge: ProblemTooLarge,
	http.StatusUnsupportedMediaType: ProblemMediaKind, http.StatusTooManyRequests: ProblemLimited, http.StatusInternalServerError: ProblemInternal,
}

// Problem is an error of an HTTP API, between roles and towards users: RFC 9457.
type Problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Errors   []FieldError `json:"errors,omitempty"`
	// Tenants that have a site of the wanted name, when it is not unique.
	Tenants []string `json:"tenants,omitempty"`
	// RetryAfter is the header of that name, in seconds; 0: none.
	RetryAfter int `json:"-"`
}

// FieldError names a field of the request and what is wrong with it.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is the detail: one line for the user.
func (p *Problem) Error() string { return p.Detail }

// retrySeconds is when to try again where nothing better is known.
const retrySeconds = 2

// Failure is the problem of a status.
func Failure(status int, format string, args ...any) *Problem {
	p := &Problem{Type: problemTypes[status], Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
	if p.Type == "" {
		if p.Type = ProblemInvalid; status >= 500 {
			p.Type = ProblemUnavailable
		}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		p.RetryAfter = retrySeconds
	}
	return p
}

// Invalid says what is wrong with each field of a request, and how to put it right.
func Invalid(errs ...FieldError) *Problem {
	lines := make([]string, len(errs))
	for i, e := range errs {
		lines[i] = e.Field + ": " + e.Detail
	}
	p := Failure(http.StatusBadRequest, "%s", strings.Join(lines, "; "))
	p.Errors = errs
	return p
}

// Write answers with the problem. Nothing must have been answered yet.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		h.Del(name) // of the answer that this is not
	}
	h.Set("Content-Type", ProblemMediaType)
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// maxProblemBytes bounds a problem that is read.
const maxProblemBytes = 64 << 10

// ReadProblem reads the problem that an answer carries, nil if it carries none.
func ReadProblem(res *http.Response) *Problem {
	have, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	if res.StatusCode < 400 || strings.TrimSpace(have) != ProblemMediaType {
		return nil
	}
	p := &Problem{}
	if json.NewDecoder(io.LimitReader(res.Body, maxProblemBytes)).Decode(p) != nil {
		return nil
	}
	p.Status = res.StatusCode // a body must not contradict its answer
	p.RetryAfter, _ = strconv.Atoi(res.Header.Get("Retry-After"))
	return p
}

// Values are those of a parameter or a header that may be repeated, and separated by
// commas: without spaces around them, and without empty ones.
func Values(in []string) []string {
	var out []string
	for _, v := range in {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// PatienceOf a request: how long regionals are waited for once one has answered; 0: as long as they may take.
func PatienceOf(r *http.Request) (time.Duration, *Problem) {
	text := r.URL.Query().Get("patience")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, Invalid(FieldError{Field: "patience", Detail: "want a duration such as 2s"})
	}
	return d, nil
}
