package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// testWeeks: a site was away for weeks. Its certificate is over, and so are the tokens; what it had
// was deleted, or changed, and is in no store any more; what the regional's disk holds of the rest
// was damaged meanwhile. It comes back as itself, drops what was deleted and gets what is new, and
// what goes on has run all the time.
func testWeeks(t *testing.T, f *clusters) {
	ctx := t.Context()
	maps := f.kube.CoreV1().ConfigMaps(shopNamespace)
	put := func(name, value string) {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}
		_, err := maps.Update(ctx, m, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// has waits until a site has these, and none where the value is empty.
	has := func(site string, values map[string]string) {
		t.Helper()
		testkit.EventuallyWithin(t, fmt.Sprintf("%s has %v", site, values), 2*time.Minute, func() error {
			var errs []error
			for name, want := range values {
				got, err := f.sites[site].Client.CoreV1().ConfigMaps(shopNamespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				if got.Data["v"] != want {
					errs = append(errs, fmt.Errorf("%s: %q", name, got.Data["v"]))
				}
			}
			return errors.Join(errs...)
		})
	}
	// digest of what a site has.
	digest := func(site, name string) string {
		t.Helper()
		m, err := f.sites[site].Client.CoreV1().ConfigMaps(shopNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Annotations[workload.Digest]
	}
	service := func(ip string) {
		t.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "weeks"}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
		if _, err := f.kube.CoreV1().Services(shopNamespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	serves := func(site string, headless bool) {
		t.Helper()
		testkit.Eventually(t, site+" has the Service", func() error {
			s, err := f.sites[site].Client.CoreV1().Services(shopNamespace).Get(ctx, "weeks", metav1.GetOptions{})
			if err == nil && (s.Spec.ClusterIP == corev1.ClusterIPNone) != headless {
				err = fmt.Errorf("at %s", s.Spec.ClusterIP)
			}
			return err
		})
	}
	service("")
	serves("lyon", false)
	put("weeks-goes", "1")
	put("weeks-changes", "1")
	put("weeks-stays", "1")
	has("lyon", map[string]string{"weeks-goes": "1", "weeks-changes": "1", "weeks-stays": "1"})
	swept := []string{digest("lyon", "weeks-goes"), digest("lyon", "weeks-changes")}
	pod := f.podOn("web", "lyon")
	ran, err := f.sites["lyon"].Client.CoreV1().Pods(shopNamespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	f.stopEdge["lyon"]()
	if err := maps.Delete(ctx, "weeks-goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	put("weeks-changes", "2")
	put("weeks-new", "1")
	// A new one that the old one can't become.
	if err := f.kube.CoreV1().Services(shopNamespace).Delete(ctx, "weeks", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	service(corev1.ClusterIPNone)
	serves("paris", true)
	has("paris", map[string]string{"weeks-goes": "", "weeks-changes": "2", "weeks-new": "1"})
	for _, d := range swept {
		f.blob(t, d, os.Remove)
	}
	if n := f.blob(t, digest("paris", "weeks-new"), func(file string) error {
		if filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(file)))) != "relay" {
			return nil
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		b[len(b)-3] ^= 1
		return os.WriteFile(file, b, 0o640)
	}); n == 0 {
		t.Error("the regional does not keep what sites get")
	}
	f.outlive(t, "lyon")

	f.startEdge("lyon")
	has("lyon", map[string]string{"weeks-goes": "", "weeks-changes": "2", "weeks-new": "1", "weeks-stays": "1"})
	serves("lyon", true)
	if now, err := f.sites["lyon"].Client.CoreV1().Pods(shopNamespace).Get(ctx, pod, metav1.GetOptions{}); err != nil || now.UID != ran.UID {
		t.Errorf("what ran there ran not on: %v", err)
	}
	testkit.Eventually(t, "it is the site that it was, and says nothing is wrong", func() error {
		for _, m := range []string{"weeks-changes", "weeks-new", "weeks-stays"} {
			if status := f.muster("vk8s", "status", "shop/prod", "configmap/"+m, "-T", "main"); countReady(status) != len(f.sites) {
				return fmt.Errorf("%s:\n%s", m, status)
			}
		}
		c, err := dynamic.NewForConfig(f.admin)
		if err != nil {
			return err
		}
		sites, err := c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "sites"}).Namespace("main-system").List(ctx, metav1.ListOptions{})
		if err == nil && len(sites.Items) != len(f.sites)+crowdSize {
			err = fmt.Errorf("%d sites of %d clusters and %d agents", len(sites.Items), len(f.sites), crowdSize)
		}
		return err
	})
	if err := f.kube.CoreV1().Services(shopNamespace).Delete(ctx, "weeks", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	for _, m := range []string{"weeks-changes", "weeks-new", "weeks-stays"} {
		if err := maps.Delete(ctx, m, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// blob calls fn with each file that keeps a blob, of control or of the regional, and says how many.
func (f *clusters) blob(t *testing.T, digest string, fn func(file string) error) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(f.path("data"), func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it is at work
			return nil
		}
		if err != nil || e.IsDir() || e.Name() != digest {
			return err
		}
		n++
		return fn(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// outlive makes three weeks pass for a site that is off: its certificate is one that the fleet's
// own CA issued to its key then, and the tokens have expired.
func (f *clusters) outlive(t *testing.T, site string) {
	t.Helper()
	file := f.path("sites", site, "agent", "cert.pem")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.Open(pki.Options{Dir: f.path("data", "control", "pki"), Now: func() time.Time { return time.Now().Add(-21 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	id, region, err := ca.ParseSite(cert)
	if err != nil {
		t.Fatal(err)
	}
	old, err := ca.IssueSite(cert.PublicKey, id, region)
	if err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(old.Leaf.NotAfter) {
		t.Fatalf("the certificate is good until %s", old.Leaf.NotAfter)
	}
	if err := os.WriteFile(file, old.CertPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(f.admin)
	if err != nil {
		t.Fatal(err)
	}
	tokens := c.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "registrationtokens"}).Namespace("main-system")
	list, err := tokens.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		t.Fatalf("%d tokens, %v", len(list.Items), err)
	}
	for _, token := range list.Items {
		if _, err := tokens.Patch(t.Context(), token.GetName(), types.MergePatchType, []byte(`{"spec":{"expires":"2020-01-01T00:00:00Z"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// countReady is on how many sites muster vk8s status says that an object is ready.
func countReady(status string) int {
	n := 0
	for _, word := range strings.Fields(status) {
		if word == "Ready" {
			n++
		}
	}
	return n
}
