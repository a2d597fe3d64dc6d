// Package archtest holds the rules of this house as tests: which way imports
// point, where heavy dependencies may live, that every package says what it is
// for, and which modules the edge binary links. It has no code of its own and
// nobody imports it; `go test ./internal/archtest` checks the rules.
package archtest
