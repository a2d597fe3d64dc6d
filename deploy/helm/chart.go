// Package helm holds the chart that makes a Kubernetes cluster a site. It is embedded so
// that `muster site manifest` prints what `helm template` would: there is one source of
// what is applied, in the form that people who run clusters read. Nothing is computed here.
package helm

import "embed"

// MusterEdge is the chart, in the folder muster-edge.
//
//go:embed all:muster-edge
var MusterEdge embed.FS
