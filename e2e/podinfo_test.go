package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
)

// testPodinfo: a chart that people know, as its makers publish it (testdata/README.md), is installed,
// upgraded to its own values for production, put back and removed; whatever it has is on every
// site as the chart says it, and nothing else of it stays.
func testPodinfo(t *testing.T, f *clusters) {
	const chart = "./testdata/podinfo"
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("of its Deployment:\n%s", f.muster("vk8s", "status", "shop/prod", "deployment/podinfo", "-o", "json", "-T", "main"))
			for site, c := range f.sites {
				d, err := c.Client.AppsV1().Deployments(shopNamespace).Get(context.Background(), "podinfo", metav1.GetOptions{})
				t.Logf("on %s: %+v, %v", site, d, err)
			}
		}
	})
	helm := f.program(t, kubectl.Helm(t))
	// Its ServiceAccount is there from the beginning: who takes serviceAccountName away by server-side apply leaves
	// the deprecated serviceAccount, which the API server fills in, with any Kubernetes; and what is put back by
	// helm rollback would then want an account that goes a second later.
	helm.run(t, "install", "podinfo", chart, "--set", "hooks.postInstall.job.enabled=true,serviceAccount.enabled=true", "--wait", "--timeout", "2m")
	plain := manifest(t, helm)
	f.has(t, plain)

	production := []string{"upgrade", "podinfo", chart, "-f", chart + "/values-prod.yaml", "--set", "ui.message=bonjour,serviceAccount.enabled=true,ingress.enabled=true", "--wait", "--timeout", "2m"}
	helm.run(t, production...)
	prod := manifest(t, helm)
	var kinds []string
	for _, o := range prod {
		kinds = append(kinds, o.GetKind())
	}
	slices.Sort(kinds)
	if want := []string{"ConfigMap", "Deployment", "Deployment", "HorizontalPodAutoscaler", "Ingress", "Service", "Service", "ServiceAccount"}; !slices.Equal(kinds, want) {
		t.Fatalf("the chart has %v, want %v", kinds, want)
	}
	f.has(t, prod)

	if out, err := helm.try(t, append(production, "--set", "ui.message=au revoir,hooks.preUpgrade.job.enabled=true,hooks.preUpgrade.job.exitCode=3")...); err == nil || !strings.Contains(out, "pre-upgrade") {
		t.Errorf("an upgrade whose hook fails on the sites: %v\n%s", err, out)
	}
	f.has(t, prod)

	helm.run(t, "rollback", "podinfo", "1", "--wait", "--timeout", "2m")
	f.has(t, plain)
	f.hasNone(t, slices.DeleteFunc(prod, func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(plain, func(p *unstructured.Unstructured) bool {
			return p.GetKind() == o.GetKind() && p.GetName() == o.GetName()
		})
	}))
	helm.run(t, "uninstall", "podinfo", "--wait", "--timeout", "2m")
	f.hasNone(t, append(plain, hook("podinfo-post-install"), hook("podinfo-pre-upgrade"))) // which the chart has deleted when they end
}

func hook(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": name, "namespace": shopNamespace}}}
}

// manifest is what the release has, as its chart says it.
func manifest(t *testing.T, helm program) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(helm.run(t, "get", "manifest", "podinfo")), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := d.Decode(o); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatal(err)
		case len(o.Object) > 0:
			out = append(out, o)
		}
	}
}

// has: every site has these objects, with all that they say. Deployments are up already.
func (f *clusters) has(t *testing.T, want []*unstructured.Unstructured) {
	t.Helper()
	for site := range f.sites {
		for _, o := range want {
			if o.GetKind() != "Deployment" {
				continue
			}
			d, err := f.sites[site].Client.AppsV1().Deployments(shopNamespace).Get(t.Context(), o.GetName(), metav1.GetOptions{})
			if err != nil || d.Status.ReadyReplicas != 1 || d.Status.UpdatedReplicas != 1 || d.Status.ObservedGeneration != d.Generation {
				t.Errorf("Deployment %s on %s: %+v, %v", o.GetName(), site, d.Status, err)
			}
		}
		for _, o := range want {
			what := o.GetKind() + " " + o.GetName() + " on " + site
			testkit.Eventually(t, what+" is as the chart says", func() error {
				got, err := f.on(t, site, o)
				if err != nil {
					return err
				}
				return within(o.Object, got.Object)
			})
		}
	}
}

// hasNone: no site has any of these objects.
func (f *clusters) hasNone(t *testing.T, gone []*unstructured.Unstructured) {
	t.Helper()
	for site := range f.sites {
		for _, o := range gone {
			what := o.GetKind() + " " + o.GetName() + " on " + site
			testkit.Eventually(t, what+" is gone", func() error {
				if _, err := f.on(t, site, o); !apierrors.IsNotFound(err) {
					return fmt.Errorf("want it not found: %w", err)
				}
				return nil
			})
		}
	}
}

// on is what a site has of an object.
func (f *clusters) on(t *testing.T, site string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	c, err := dynamic.NewForConfig(f.sites[site].Config)
	if err != nil {
		return nil, err
	}
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return c.Resource(resource).Namespace(shopNamespace).Get(t.Context(), o.GetName(), metav1.GetOptions{})
}

// within: whatever is wanted is there, and there may be more, such as defaults.
func within(want, got any) error {
	switch want := want.(type) {
	case nil:
		return nil
	case map[string]any:
		got, _ := got.(map[string]any)
		for k, v := range want {
			if err := within(v, got[k]); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
		}
		return nil
	case []any:
		got, _ := got.([]any)
		if len(got) != len(want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		for i := range want {
			if err := within(want[i], got[i]); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return nil
	}
	if fmt.Sprint(want) == fmt.Sprint(got) {
		return nil
	}
	w, err := resource.ParseQuantity(fmt.Sprint(want)) // 1000m is 1
	g, err2 := resource.ParseQuantity(fmt.Sprint(got))
	if err != nil || err2 != nil || w.Cmp(g) != 0 {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}
