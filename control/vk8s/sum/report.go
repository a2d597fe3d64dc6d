package sum

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// Handler answers below /muster/workloads of a virtual Kubernetes, as wire.Workload says.
// namespace tells whose request it is, mayGet whether its user may read an object: who may
// not is told no fields of it, and that they were left out.
func (c *Controller) Handler(namespace func(context.Context) (string, bool), mayGet func(ctx context.Context, kind schema.GroupKind, name string) bool) http.Handler {
	answer := func(w http.ResponseWriter, o any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(o)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /muster/workloads", func(w http.ResponseWriter, req *http.Request) {
		ns, ok := namespace(req.Context())
		if !ok {
			refuse(w, http.StatusNotFound, errors.New("not of a virtual Kubernetes"))
			return
		}
		items := c.List(ns, req.URL.Query().Get("site"))
		for i := range items {
			if !mayGet(req.Context(), schema.GroupKind{Group: items[i].Group, Kind: items[i].Kind}, items[i].Name) {
				hide(items[i])
			}
		}
		answer(w, wire.WorkloadList{Items: items})
	})
	mux.HandleFunc("GET /muster/workloads/{kind}/{name}", func(w http.ResponseWriter, req *http.Request) {
		ns, ok := namespace(req.Context())
		kind, group, _ := strings.Cut(req.PathValue("kind"), ".")
		var one wire.Workload
		if ok {
			one, ok = c.Workload(workload.ItemName(group, kind, ns, req.PathValue("name")), true)
		}
		if !ok {
			refuse(w, http.StatusNotFound, fmt.Errorf("%s %s is not carried to sites", req.PathValue("kind"), req.PathValue("name")))
			return
		}
		if !mayGet(req.Context(), schema.GroupKind{Group: one.Group, Kind: one.Kind}, one.Name) {
			hide(one)
		} else if req.URL.Query().Has("fields") {
			c.compare(req.Context(), one)
		}
		answer(w, one)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Errorf("want /muster/workloads or /muster/workloads/KIND.GROUP/NAME"))
	})
	return mux
}

// hide leaves out what who may not get an object is not told of it, and says so where there
// may have been something: fields, and what a site says of a Secret in words, among which
// may be its keys.
func hide(w wire.Workload) {
	for i := range w.Sites {
		s := &w.Sites[i]
		if s.Fields = nil; s.Drifted || s.Digest != "" && s.Digest != s.Wanted {
			s.NoFields = wire.FieldsForbidden
		}
		if isSecret(w) {
			s.Message = ""
		}
	}
	for i := range w.Reasons {
		if isSecret(w) {
			w.Reasons[i].Message = ""
		}
	}
}

func isSecret(w wire.Workload) bool { return w.Group == "" && w.Kind == "Secret" }

// maxCompared bounds how many pairs of contents a request has compared: sites that have, and
// should have, the same share one.
const maxCompared = 100

// compare names for each site that has not what it should have the fields in which that
// differs, as far as both contents are still at hand. It asks no site.
func (c *Controller) compare(ctx context.Context, w wire.Workload) {
	type pair struct{ has, wanted string }
	type answer struct {
		fields []string
		none   string
	}
	known := map[pair]answer{}
	for i := range w.Sites {
		s := &w.Sites[i]
		if s.Digest == "" || s.Digest == s.Wanted {
			continue
		}
		p := pair{s.Digest, s.Wanted}
		is, there := known[p]
		if !there && len(known) < maxCompared {
			is.fields, is.none = c.differing(ctx, w.Kind, p.has, p.wanted)
			known[p] = is
		}
		s.Fields, s.NoFields = is.fields, is.none // what somebody changed counts from what it has, which is something else
	}
}

// differing names the fields, or says why it can't. Older versions of Secrets are not kept at
// all, so that of these it never can.
func (c *Controller) differing(ctx context.Context, kind, has, wanted string) (fields []string, none string) {
	var one, other map[string]any
	for digest, to := range map[string]*map[string]any{wanted: &one, has: &other} {
		b, err := c.o.Content(ctx, digest)
		switch {
		case errors.Is(err, fs.ErrNotExist) && digest == has:
			none = wire.FieldsNotKept
		case err != nil || json.Unmarshal(b, to) != nil:
			return nil, ""
		}
	}
	if none != "" || !sameObject(one, other) {
		return nil, none
	}
	return workload.Differing(kind, one, other), ""
}

// sameObject is whether two contents are of one object: a site may say that it has what is another's.
func sameObject(one, other map[string]any) bool {
	a, b := unstructured.Unstructured{Object: one}, unstructured.Unstructured{Object: other}
	return a.GetKind() == b.GetKind() && a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}

// refuse answers as the Kubernetes API does.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReasonNotFound, Message: err.Error()})
}

// List are the workloads of a namespace, and whatever else sites tell of, without sites;
// with a site, those on it, each with that site alone.
func (c *Controller) List(namespace, site string) []wire.Workload {
	c.mu.RLock()
	items := map[string]bool{}
	for item := range c.spaces[namespace] {
		items[item] = true
	}
	c.mu.RUnlock()
	for _, item := range c.o.Items(namespace) {
		items[item] = true
	}
	out := []wire.Workload{}
	for item := range items {
		w, ok := c.Workload(item, site != "")
		if site != "" {
			i := slices.IndexFunc(w.Sites, func(s wire.WorkloadSite) bool { return s.Site == site })
			if i < 0 {
				continue
			}
			w.Sites = w.Sites[i : i+1]
		}
		if ok {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b wire.Workload) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Workload tells what an item is on its sites; false: it is not carried.
func (c *Controller) Workload(item string, withSites bool) (wire.Workload, bool) {
	group, kind, _, name, err := workload.ParseItemName(item)
	o, p, all, ignored, ok := c.of(item)
	if err != nil || !ok {
		return wire.Workload{}, false
	}
	w := wire.Workload{Group: group, Kind: kind, Name: name, Created: p.Created, VirtualSites: p.VirtualSites}
	desired := 0
	if o != nil {
		w.Version = "v1"
		var replicas *int32
		template := &corev1.PodTemplateSpec{}
		switch d := o.(type) {
		case *appsv1.Deployment:
			replicas, template = d.Spec.Replicas, &d.Spec.Template
		case *appsv1.StatefulSet:
			replicas, template = d.Spec.Replicas, &d.Spec.Template
		case *appsv1.DaemonSet:
			template = &d.Spec.Template
		case *batchv1.Job:
			template = &d.Spec.Template
		case *batchv1.CronJob:
			template = &d.Spec.JobTemplate.Spec.Template
		}
		if replicas != nil {
			desired = int(*replicas)
		}
		for _, ct := range template.Spec.Containers {
			w.Images = append(w.Images, ct.Image)
		}
	}
	if w.VirtualSites == nil {
		w.VirtualSites = []string{}
	}
	all = append(all, ignored...)
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.site.Name, b.site.Name) })
	return describe(w, all, desired, withSites), true
}
