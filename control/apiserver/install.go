package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/crds"
)

func unversioned(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme.Scheme)
	return c
}

// installCRDs applies Muster's CRDs and waits until they are served.
func installCRDs(ctx context.Context, cfg *rest.Config) error {
	client, err := apiextensionsclient.NewForConfig(cfg)
	if err != nil {
		return err
	}
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return err
	}
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	var installed []string
	for _, name := range names {
		doc, err := crds.Files.ReadFile(name)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(doc, &crd); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		body, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		force := true
		if _, err := api.Patch(ctx, crd.Name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "muster", Force: &force}); err != nil {
			return fmt.Errorf("install %s: %w", crd.Name, err)
		}
		installed = append(installed, crd.Name)
	}
	for _, name := range installed {
		if err := awaitEstablished(ctx, client, name); err != nil {
			return err
		}
	}
	return nil
}

func awaitEstablished(ctx context.Context, client apiextensionsclient.Interface, name string) error {
	for deadline := time.Now().Add(time.Minute); ; {
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			for _, c := range crd.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not served after a minute: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}
