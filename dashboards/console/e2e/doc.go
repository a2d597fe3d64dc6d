// Package e2e runs the console against the real API server, as an identity that has
// the rights of console.Rules and no others. It stands apart because it links the
// API server.
package e2e
