package apiserver_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// What deploy/samples shows is taken as it is, with no field unknown.
func TestSamples(t *testing.T) {
	c, err := client.New(kubeapi.Start(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, name := range []string{"acme-system", "acme-shared"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelTenant: "acme"}}}
		if err := c.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("../../deploy/samples/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("samples %v, %v", files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		docs := utilyaml.NewYAMLReader(bufio.NewReader(f))
		for n := 1; ; n++ {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var o unstructured.Unstructured
			if err == nil {
				err = yaml.Unmarshal(doc, &o.Object)
			}
			if err == nil && len(o.Object) > 0 {
				// Another test may have one of the name; it is checked all the same.
				err = client.IgnoreAlreadyExists(strict.Create(t.Context(), &o, client.DryRunAll))
			}
			if err != nil {
				t.Errorf("%s, document %d (%s %s): %v", name, n, o.GetKind(), o.GetName(), err)
			}
		}
	}
}
