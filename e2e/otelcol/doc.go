// Package otelcol has a stock OpenTelemetry Collector push a site to a real gateway, and
// looks what health makes of it. It holds one test, which `make test-otelcol` runs; it stands
// apart from package e2e since the Collector takes minutes to build.
package otelcol
