package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/workload"
)

// MaxBlob is how large an object may be as a site gets it, in bytes.
const MaxBlob = 1 << 20

// MaxOverride is how large the spec of an Override may be, in bytes: half of that, as it is the
// object's with all that stands beside its spec.
const MaxOverride = MaxBlob / 2

// MaxItemName is how long workload.ItemName may be.
const MaxItemName = 480

// Names of what a site's namespace has besides what users put there.
const (
	IsolationName = "muster-isolation"
	QuotaName     = "muster-quota"
)

// Carried tells whether an object of the kind is for sites at all: what Kubernetes puts
// into every namespace by itself is there already, a token of the centre is worth nothing
// on a site, and the history of Helm's releases is nobody's but Helm's.
func Carried(kind offered.Kind, object map[string]any) bool {
	meta := child(object, "metadata")
	name, _ := meta["name"].(string)
	if meta["deletionTimestamp"] != nil {
		return false
	}
	switch kind.Kind + "." + kind.Group {
	case "ServiceAccount.":
		return name != "default"
	case "ConfigMap.":
		return name != "kube-root-ca.crt" && !(strings.HasPrefix(name, "sh.helm.release.v1.") && child(meta, "labels")["owner"] == "helm")
	case "Secret.":
		typ, _ := object["type"].(string)
		return typ != "kubernetes.io/service-account-token" && typ != "helm.sh/release.v1" && typ != "bootstrap.kubernetes.io/token"
	case "NetworkPolicy.networking.k8s.io":
		return name != IsolationName
	}
	return true
}

// ownAnnotations say something to the centre alone, or are left by somebody who did
// something with the object here.
var ownAnnotations = []string{
	workload.VirtualSites, workload.Overrides, workload.Flavor, workload.OfflineSites, workload.Digest, workload.Origin, v1alpha1.AnnotationRollout,
	"kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation", "batch.kubernetes.io/job-tracking",
	"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
}

// strip takes from an object all that the site has to say itself. The object is changed.
func strip(kind offered.Kind, u map[string]any) {
	meta := child(u, "metadata")
	owned := managed{meta["managedFields"]}
	labels, annotations := child(meta, "labels"), child(meta, "annotations")
	for _, key := range ownAnnotations {
		delete(annotations, key)
	}
	if labels == nil {
		labels = map[string]any{}
	}
	labels[workload.Owned] = "true"
	kept := map[string]any{"name": meta["name"], "namespace": meta["namespace"], "labels": labels}
	if uid, ok := meta["uid"].(string); ok && uid != "" {
		if annotations == nil {
			annotations = map[string]any{}
		}
		annotations[workload.Origin] = uid
	}
	if len(annotations) > 0 {
		kept["annotations"] = annotations
	}
	u["apiVersion"], u["kind"], u["metadata"] = kind.GroupVersionKind().GroupVersion().String(), kind.Kind, kept
	delete(u, "status")
	spec := child(u, "spec")
	switch kind.Kind + "." + kind.Group {
	case "Service.":
		stripService(spec, owned)
	case "PersistentVolumeClaim.":
		if !owned.has("f:spec", "f:volumeName") {
			delete(spec, "volumeName")
		}
	case "ServiceAccount.":
		delete(u, "secrets")
	case "Job.batch":
		stripJob(spec, labels)
	case "CronJob.batch":
		stripTime(child(spec, "jobTemplate"))
	case "StatefulSet.apps":
		claims, _ := spec["volumeClaimTemplates"].([]any)
		for _, c := range claims {
			if c, ok := c.(map[string]any); ok {
				stripTime(c)
				delete(c, "status")
			}
		}
	}
	if kind.Template != nil {
		stripTime(child(u, kind.Template...))
	}
}

// stripTime takes the empty creation time that the API server writes into templates.
func stripTime(o map[string]any) {
	if meta := child(o, "metadata"); meta != nil {
		if meta["creationTimestamp"] == nil {
			delete(meta, "creationTimestamp")
		}
		if len(meta) == 0 {
			delete(o, "metadata")
		}
	}
}

// stripService leaves addresses and ports of nodes to the site, but for ports that
// somebody asked for.
func stripService(spec map[string]any, owned managed) {
	if spec == nil {
		return
	}
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
	}
	delete(spec, "clusterIPs")
	delete(spec, "ipFamilies")
	if spec["ipFamilyPolicy"] == "SingleStack" || !owned.has("f:spec", "f:ipFamilyPolicy") { // of a headless one without a selector it is RequireDualStack
		delete(spec, "ipFamilyPolicy")
	}
	if !owned.has("f:spec", "f:healthCheckNodePort") {
		delete(spec, "healthCheckNodePort")
	}
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		p, ok := p.(map[string]any)
		if !ok || p["nodePort"] == nil {
			continue
		}
		protocol, _ := p["protocol"].(string)
		key, err := json.Marshal(map[string]any{"port": p["port"], "protocol": protocol})
		if err != nil || !owned.has("f:spec", "f:ports", "k:"+string(key), "f:nodePort") {
			delete(p, "nodePort")
		}
	}
}

// stripJob leaves the selector to the site, and its end to the centre: a Job that a site
// removed by itself would be put there, and run, once more.
func stripJob(spec, own map[string]any) {
	if spec == nil {
		return
	}
	delete(spec, "ttlSecondsAfterFinished")
	if spec["manualSelector"] == true {
		return
	}
	delete(spec, "selector")
	labels := child(spec, "template", "metadata", "labels")
	for _, key := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
		delete(labels, key)
		delete(own, key) // a Job without labels gets its template's
	}
	if meta := child(spec, "template", "metadata"); meta != nil && len(labels) == 0 {
		delete(meta, "labels")
	}
}

// managed are an object's managedFields: who set what. What the API server allocates by
// itself is nobody's.
type managed struct{ entries any }

func (m managed) has(path ...string) bool {
	entries, _ := m.entries.([]any)
	for _, e := range entries {
		e, ok := e.(map[string]any)
		if !ok || e["subresource"] != nil {
			continue
		}
		fields := child(e, "fieldsV1")
		for _, step := range path {
			next, ok := fields[step].(map[string]any)
			if !ok {
				next = nil
				for key, v := range fields { // keys of lists may order their fields otherwise
					if strings.HasPrefix(step, "k:") && sameKey(step, key) {
						next, _ = v.(map[string]any)
					}
				}
			}
			if fields = next; fields == nil {
				break
			}
		}
		if fields != nil {
			return true
		}
	}
	return false
}

// sameKey compares two keys of a list's element, k:{…}.
func sameKey(a, b string) bool {
	var x, y map[string]any
	rest, ok := strings.CutPrefix(b, "k:")
	if !ok || json.Unmarshal([]byte(a[2:]), &x) != nil || json.Unmarshal([]byte(rest), &y) != nil || len(x) != len(y) {
		return false
	}
	for k, v := range x {
		if y[k] != v {
			return false
		}
	}
	return true
}

// size gives the containers of a pod's template their flavor: where it is asked for,
// instead of what they say; else for what they don't say.
func size(template map[string]any, flavor string) error {
	f, err := workload.ParseFlavor(flavor)
	if err != nil {
		return err
	}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := child(template, "spec")[list].([]any)
		for _, c := range containers {
			c, ok := c.(map[string]any)
			if !ok {
				continue
			}
			for name, v := range map[string][2]*resource.Quantity{
				"cpu":    {resource.NewMilliQuantity(f.MilliCPU, resource.DecimalSI), resource.NewMilliQuantity(f.MilliCPU/2, resource.DecimalSI)},
				"memory": {resource.NewQuantity(f.MemoryBytes, resource.BinarySI), resource.NewQuantity(f.MemoryBytes/2, resource.BinarySI)},
			} {
				limits, requests := child(c, "resources", "limits"), child(c, "resources", "requests")
				if flavor == "" && (limits[name] != nil || requests[name] != nil) {
					continue
				}
				set(c, v[0].String(), "resources", "limits", name)
				set(c, v[1].String(), "resources", "requests", name)
			}
		}
	}
	return nil
}

// child is a map within maps, nil where there is none.
func child(o map[string]any, path ...string) map[string]any {
	for _, key := range path {
		o, _ = o[key].(map[string]any)
	}
	return o
}

func set(o map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, _ := o[key].(map[string]any)
		if next == nil {
			next = map[string]any{}
			o[key] = next
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

// CheckOverride says what keeps the spec of an Override from being carried: its size.
func CheckOverride(spec any) error {
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if n := len(b); n > MaxOverride {
		return fmt.Errorf("its spec has %d bytes, which is more than the %d that an Override may put in the place of another; put what is large into objects beside it", n, MaxOverride)
	}
	return nil
}

// Check says what keeps an object from being carried to sites: bad annotations and size.
// The object is as the API server stores it, and is changed.
func Check(kind offered.Kind, namespace, short string, object map[string]any) error {
	if !Carried(kind, object) {
		return nil
	}
	o, err := newObject(kind, namespace, short, object)
	if err != nil {
		return err
	}
	if n := len(o.base); n > MaxBlob {
		return fmt.Errorf("it has %d bytes as sites get it, which is more than the %d that one object may have; split it, or have what is large fetched from elsewhere", n, MaxBlob)
	}
	if n := len(o.name); n > MaxItemName {
		return fmt.Errorf("its kind, namespace and name have %d characters together, which is more than %d", n, MaxItemName)
	}
	return nil
}
