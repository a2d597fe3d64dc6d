package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

// testVirtualHost: a Service that stands on one cluster is reached from another by name, through
// the regional, for as long as a policy says so, and from no third.
func testVirtualHost(t *testing.T, f *clusters) {
	own := testkit.OwnAddress(t)
	if own == "" {
		t.Skip("this machine has no address but loopback, which no EndpointSlice may have")
	}
	f.muster("site", "label", "lyon", "db=serves", "-T", "main")
	f.muster("site", "label", "paris", "db=asks", "-T", "main")
	if _, err := f.kube.CoreV1().Services(shopNamespace).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kubesite.Apply(t.Context(), f.admin, strings.ReplaceAll(`
apiVersion: muster.dev/v1alpha1
kind: VirtualSite
metadata: {name: serving, namespace: main-shared}
spec: {siteSelector: {matchLabels: {db: serves}}}
---
apiVersion: muster.dev/v1alpha1
kind: VirtualSite
metadata: {name: asking, namespace: main-shared}
spec: {siteSelector: {matchLabels: {db: asks}}}
---
apiVersion: muster.dev/v1alpha1
kind: VirtualHost
metadata: {name: db-global, namespace: SHOP}
spec: {service: {name: db, port: 5432}, virtualSite: shared/serving}
---
apiVersion: muster.dev/v1alpha1
kind: AdvertisePolicy
metadata: {name: asking, namespace: SHOP}
spec: {virtualHost: db-global, virtualSites: [shared/asking]}
`, "SHOP", shopNamespace)); err != nil {
		t.Fatal(err)
	}
	f.serveOn(t, "lyon", "db", own)

	var conn net.Conn
	testkit.EventuallyWithin(t, "a pod of paris talks with the Service on lyon", time.Minute, func() (err error) {
		conn, err = f.reach(t, "paris", "db-global")
		return err
	})
	defer conn.Close()
	if _, err := f.sites["nice"].Client.CoreV1().Services(shopNamespace).Get(t.Context(), "db-global", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a site to which it is not advertised: %v", err)
	}
	testkit.Eventually(t, "it is told", func() error {
		host, err := f.object(t, "virtualhosts", shopNamespace, "db-global")
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(host.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Ready" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("%v", conditions)
	})
	if list := f.muster("get", "virtualhosts", "-T", "main"); !strings.Contains(list, "db-global") {
		t.Errorf("muster get virtualhosts:\n%s", list)
	}

	policies, err := dynamic.NewForConfig(f.admin)
	if err != nil {
		t.Fatal(err)
	}
	if err := policies.Resource(schema.GroupVersionResource{Group: "muster.dev", Version: "v1alpha1", Resource: "advertisepolicies"}).Namespace(shopNamespace).
		Delete(t.Context(), "asking", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that was open as the policy went: %v", err)
	}
	if err := f.kube.CoreV1().Services(shopNamespace).Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "its name is gone", func() error {
		_, err := f.sites["paris"].Client.CoreV1().Services(shopNamespace).Get(t.Context(), "db-global", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Service on paris: %v", err)
		}
		return nil
	})
}

// serveOn has a Service of a site lead to a server that says where it is and then repeats each line, as the
// pods behind it would: those of these clusters have no network.
func (f *clusters) serveOn(t *testing.T, site, service, own string) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(own, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = fmt.Fprintln(c, "here is "+site)
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	port, name, ready := int32(ln.Addr().(*net.TCPAddr).Port), "sql", true
	if _, err := f.sites[site].Client.DiscoveryV1().EndpointSlices(shopNamespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-pods", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{own}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reach connects to a virtual host as a pod of a site does, which its Service leads to the address of
// the EndpointSlice, and talks with who is there.
func (f *clusters) reach(t *testing.T, site, host string) (net.Conn, error) {
	slices, err := f.sites[site].Client.DiscoveryV1().EndpointSlices(shopNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + host})
	if err != nil {
		return nil, err
	}
	if len(slices.Items) != 1 {
		return nil, fmt.Errorf("%d EndpointSlices of %s on %s", len(slices.Items), host, site)
	}
	s := slices.Items[0]
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(s.Endpoints[0].Addresses[0], fmt.Sprint(*s.Ports[0].Port)), 5*time.Second)
	if err != nil {
		return nil, err
	}
	talk := func() error {
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return err
		}
		r := bufio.NewReader(conn)
		for _, want := range []string{"here is lyon\n", "hello\n"} {
			if got, err := r.ReadString('\n'); got != want {
				return fmt.Errorf("it said %q, %v, want %q", got, err, want)
			}
		}
		return nil
	}
	if err := talk(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
