// Package source is the backend of Muster's data source for Grafana: queries, variables,
// annotations, streams and the health check, each asked of the console's public API as
// the user who looks.
//
// It must not keep what one user was answered for another.
package source
