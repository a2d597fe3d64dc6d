// Package senders has a stock OpenTelemetry Collector and a stock Prometheus in agent mode each
// push a site to a real gateway, by the sample configurations, and looks what health makes of
// it. `make test-senders` runs it; it stands apart from package e2e since the two take minutes
// to build.
package senders
