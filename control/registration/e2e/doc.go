// Package e2e tests registration, desired state and the fleet API together against
// the real API server: its validation, its optimistic concurrency, its watches.
// It holds no code that ships; it stands apart because it links the API server.
package e2e
