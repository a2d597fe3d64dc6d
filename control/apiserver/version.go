package apiserver

import (
	"cmp"
	"regexp"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"muster.dev/muster/internal/obs"
)

// kubernetesVersion is that of the API server that is linked. Kubernetes sets it when
// its own release is linked, which a module's build does not; a test holds it to go.mod.
const kubernetesVersion = "v1.35.4"

// released tells clients the version that is linked, where the stock one tells
// v0.0.0-master: charts ask for a kubeVersion, and tools choose by it what they may send.
type released struct{ compatibility.EffectiveVersion }

// Info implements compatibility.EffectiveVersion.
func (r released) Info() *version.Info {
	info := r.EffectiveVersion.Info()
	if info == nil {
		return nil
	}
	info.GitVersion = gitVersion(obs.Version)
	info.GitCommit, info.GitTreeState = "", "" // Kubernetes' own, which nobody stamped
	info.GoVersion = cmp.Or(info.GoVersion, runtime.Version())
	if built := obs.Built(); !built.IsZero() {
		info.BuildDate = built.UTC().Format(time.RFC3339)
	}
	return info
}

var noMetadata = regexp.MustCompile(`[^0-9A-Za-z.-]+`)

// gitVersion is the version with this build's in its metadata, as semver wants it.
func gitVersion(build string) string {
	build = strings.Trim(noMetadata.ReplaceAllString(build, "-"), ".-")
	return kubernetesVersion + "+muster." + cmp.Or(build, "dev")
}

// tellVersion has each server of the chain answer with the version that is linked.
func tellVersion(c *app.Config) {
	for _, g := range []*compatibility.EffectiveVersion{
		&c.KubeAPIs.ControlPlane.Generic.EffectiveVersion,
		&c.ApiExtensions.GenericConfig.EffectiveVersion,
		&c.Aggregator.GenericConfig.EffectiveVersion,
	} {
		*g = released{*g}
	}
}
