package kube_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/workload"
)

// TestHosts: names of virtual hosts on a real API server, with the rights that the chart
// grants and no others.
func TestHosts(t *testing.T) {
	t.Parallel() // it waits most of the time
	address := testkit.OwnAddress(t)
	if address == "" {
		t.Skip("this machine has no address but loopback")
	}
	c := kubesite.Start(t, kubesite.Options{Nodes: 1})
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "muster-edge"}, Rules: append(kube.Rules(), kube.HostRules()...)}, metav1.CreateOptions{})
	must(err)
	_, err = c.Client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "muster-edge"}}, metav1.CreateOptions{})
	must(err)
	_, err = c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "muster-edge"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "muster-edge"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "muster-edge"}}}, metav1.CreateOptions{})
	must(err)
	dir, config := t.TempDir(), c.ConfigAs("default", "muster-edge")
	k, err := kube.New(kube.Options{Dir: dir, Config: config, Address: address, VirtualHosts: true, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	h := &vhost.Host{Tenant: "acme", Namespace: "shop", Name: "db", Host: "db-global", Port: 5432, Service: "db", ServicePort: 5432}
	list := []hosts.Published{{Host: h, Port: 40001}}
	if _, err := k.Publish(ctx, list); err == nil || !strings.Contains(err.Error(), "not known to be this site's") {
		t.Errorf("before it is known whose the cluster is: %v", err)
	}
	stop := run(t, k)
	services, slices := c.Client.CoreV1().Services(ns), c.Client.DiscoveryV1().EndpointSlices(ns)
	testkit.Eventually(t, "without the namespace it says what is missing", func() error {
		failed, err := k.Publish(ctx, list)
		if e := failed[h.Key()]; err != nil || e == nil || !strings.Contains(e.Error(), "namespace acme-shop is not on this site") {
			return errors.Join(err, e, errors.New("not that")) // the grants take a moment
		}
		return nil
	})
	space, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	must(err)
	publish := func(want string, list ...hosts.Published) {
		t.Helper()
		failed, err := k.Publish(ctx, list)
		e := failed[h.Key()]
		if err != nil || (e == nil) != (want == "") || e != nil && !strings.Contains(e.Error(), want) {
			t.Fatalf("%v, %v; want %q", e, err, want)
		}
	}
	publish("the namespace acme-shop is not Muster's on this site", list...)
	space.Labels = map[string]string{workload.Owned: "true"}
	_, err = c.Client.CoreV1().Namespaces().Update(ctx, space, metav1.UpdateOptions{})
	must(err)
	publish("", list...)
	svc, err := services.Get(ctx, "db-global", metav1.GetOptions{})
	must(err)
	if svc.Spec.ClusterIP == "" || svc.Spec.Ports[0].Port != 5432 || len(svc.Spec.Selector) > 0 {
		t.Errorf("%+v", svc.Spec)
	}
	slice, err := slices.Get(ctx, "db-global-muster-edge", metav1.GetOptions{})
	must(err)
	if slice.Endpoints[0].Addresses[0] != address || *slice.Ports[0].Port != 40001 || slice.Labels[discoveryv1.LabelServiceName] != "db-global" {
		t.Errorf("%+v", slice)
	}
	list[0].Port = 40002 // after a restart
	publish("", list...)
	if slice, err = slices.Get(ctx, "db-global-muster-edge", metav1.GetOptions{}); err != nil || *slice.Ports[0].Port != 40002 {
		t.Errorf("%+v, %v", slice.Ports, err)
	}
	publish("")
	for what, err := range map[string]error{"Service": second(services.Get(ctx, "db-global", metav1.GetOptions{})), "EndpointSlice": second(slices.Get(ctx, "db-global-muster-edge", metav1.GetOptions{}))} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("the %s of what is withdrawn: %v", what, err)
		}
	}

	// A cluster on which virtual hosts are switched off has none that lead nowhere.
	publish("", list...)
	stop()
	off, err := kube.New(kube.Options{Dir: dir, Config: config, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	stop = run(t, off)
	testkit.EventuallyTrue(t, "the Service and its EndpointSlice are gone", func() bool {
		return apierrors.IsNotFound(second(services.Get(ctx, "db-global", metav1.GetOptions{}))) && apierrors.IsNotFound(second(slices.Get(ctx, "db-global-muster-edge", metav1.GetOptions{})))
	})
	stop()
	run(t, k)

	// Somebody's own Service of that name is left alone.
	_, err = services.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db-global"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}, metav1.CreateOptions{})
	must(err)
	publish("a Service db-global is already in namespace acme-shop", list...)
	publish("")
	if svc, err = services.Get(ctx, "db-global", metav1.GetOptions{}); err != nil || svc.Spec.Ports[0].Port != 1 {
		t.Errorf("somebody's own Service: %+v, %v", svc, err)
	}
	if _, err = slices.Get(ctx, "db-global-muster-edge", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its traffic is led away: %v", err)
	}

	// What serves it: only what the fleet has put there.
	dial := func(want string) net.Conn {
		t.Helper()
		conn, err := k.Dial(ctx, h)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		return conn
	}
	dial("not on this site")
	db := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "sql", Port: 5432}}}}
	db, err = services.Create(ctx, db, metav1.CreateOptions{})
	must(err)
	dial("not put there by the fleet")
	db.Labels = map[string]string{workload.Owned: "true"}
	_, err = services.Update(ctx, db, metav1.UpdateOptions{})
	must(err)
	dial("none of its pods is ready")
	ln, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	must(err)
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
	name, port := "sql", int32(ln.Addr().(*net.TCPAddr).Port)
	_, err = slices.Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port}}}, metav1.CreateOptions{})
	must(err)
	conn := dial("")
	defer conn.Close()
	if b, err := io.ReadAll(conn); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
}

func second[T any](_ T, err error) error { return err }

// run lets an agent without workloads run, until what is returned is called.
func run(t *testing.T, k *kube.Kube) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = k.Run(ctx, newCentre(mirror.DefaultLimits), func(string, string, string, string) {})
	}()
	k.TakeSet(agent.Set{Site: fleet.SiteID{Tenant: "acme", Name: "lille"}})
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}
