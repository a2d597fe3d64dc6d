// Package dashboards is Muster's Grafana dashboards as code. All builds them; the
// generate command writes them as the JSON files beside it, which Grafana provisions and
// people import. They name no data source of their own: each asks for it with a variable.
// Queries takes their PromQL out again, for tests that run it against a fleet.
//
// It must not read anything or call anything: what it makes depends on its code alone.
package dashboards

//go:generate go run ./generate
