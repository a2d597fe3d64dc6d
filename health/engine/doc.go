// Package engine computes the health of every site, every tick: it asks the
// regionals' Prometheus engines one query a signal for the whole fleet, and their
// live views which sites are connected, hands the answers to the pure model in
// health, and publishes what comes out: as a View with changes for health/api, as
// series in Cortex and the regionals, and as transitions in the API server.
//
// It holds no opinion on what is healthy; that is the model's and the policies'. It
// writes to nothing but its own directory, the metric stores and status.
// cmd/internal runs one Engine.
package engine
