package logs

import (
	"encoding/json"
	"net/http"
	"strings"
	"unicode"
)

// problem is an error for the user, in the form of RFC 9457 and with the types of the
// console's API.
type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Errors []fieldError `json:"errors,omitempty"`
}

type fieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

const (
	typeInvalid  = "urn:muster:problem:invalid"
	typeNotFound = "urn:muster:problem:not-found"
	typeLimited  = "urn:muster:problem:too-many-requests"
)

func failure(status int, typ, detail string) *problem {
	return &problem{Type: typ, Title: http.StatusText(status), Status: status, Detail: detail}
}

func invalid(field, detail string) *problem {
	p := failure(http.StatusBadRequest, typeInvalid, field+": "+detail)
	p.Errors = []fieldError{{field, detail}}
	return p
}

func (p *problem) Error() string { return p.Detail }

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "2")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// clean makes a line out of what a regional says, for people to read.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(strings.TrimSpace(s)); len(r) > 300 {
		return string(r[:300]) + "…"
	}
	return strings.TrimSpace(s)
}
