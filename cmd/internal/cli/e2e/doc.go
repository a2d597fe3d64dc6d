// Package e2e runs every verb of the CLI as ordinary users of a tenant, against the
// real control plane and the real console. It stands apart because it links the API
// server.
package e2e
