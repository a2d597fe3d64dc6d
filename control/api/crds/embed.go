// Package crds embeds the CustomResourceDefinitions that are generated from
// control/api/v1alpha1. It holds no behaviour; control/apiserver installs them.
package crds

import "embed"

// Files are the CRDs, one YAML document a file.
//
//go:embed *.yaml
var Files embed.FS
