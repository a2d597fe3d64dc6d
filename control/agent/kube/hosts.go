package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/workload"
)

// sliceSuffix is behind a host's name in that of its EndpointSlice.
const sliceSuffix = "-muster-edge"

var (
	serviceResource = corev1.SchemeGroupVersion.WithResource("services")
	sliceResource   = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// Publish implements hosts.Site: each host is a Service without a selector, whose
// EndpointSlice leads to this process. They lack workload.Owned: they are not what control
// applied, and an object that control applies under the same name is a clash there too.
func (k *Kube) Publish(ctx context.Context, list []hosts.Published) (map[string]error, error) {
	if !k.ours.Load() {
		return nil, errors.New("the cluster is not known to be this site's: see the condition " + Reachable)
	}
	failed := map[string]error{}
	kept := map[string]bool{}
	var address string
	for _, p := range list {
		h := p.Host
		kept[h.SiteNamespace()+"/"+h.Host] = true
		var err error
		if address == "" {
			address, err = k.address()
		}
		if err == nil {
			err = k.publish(ctx, h, address, p.Port)
		}
		if err != nil {
			failed[h.Key()] = err
		}
	}
	return failed, k.unpublish(ctx, kept)
}

// address is where pods of the cluster reach this process.
func (k *Kube) address() (string, error) {
	if k.opts.Address != "" {
		return k.opts.Address, nil
	}
	u, err := url.Parse(k.cluster.cfg.Host)
	if err != nil {
		return "", fmt.Errorf("this pod's own address: %w", err)
	}
	// Nothing is sent: the kernel says from where it would be.
	c, err := net.Dial("udp", net.JoinHostPort(cmp.Or(u.Hostname(), u.Path), cmp.Or(u.Port(), "443")))
	if err != nil {
		return "", fmt.Errorf("this pod's own address: %w", err)
	}
	defer c.Close()
	ip := c.LocalAddr().(*net.UDPAddr).IP
	if ip.IsLoopback() {
		return "", errors.New("this process's own address is not known: set kubernetes.address")
	}
	return ip.String(), nil
}

func (k *Kube) publish(ctx context.Context, h *vhost.Host, address string, port int) error {
	ns := h.SiteNamespace()
	space, err := k.cluster.get(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", ns)
	switch {
	case err != nil:
		return err
	case space == nil:
		return fmt.Errorf("namespace %s is not on this site: a VirtualKubernetes whose virtual sites reach the site makes it", ns)
	case space.Labels[workload.Owned] != "true":
		return fmt.Errorf("the namespace %s is not Muster's on this site (no label %s)", ns, workload.Owned)
	}
	have, err := k.cluster.get(ctx, serviceResource, ns, h.Host)
	if err != nil {
		return err
	}
	if have != nil && have.GetLabels()[vhost.ServiceLabel] == "" {
		// Else its traffic would be led away.
		if err := k.dropSlice(ctx, ns, h.Host); err != nil {
			return err
		}
		return fmt.Errorf("a Service %s is already in namespace %s: remove it, or name another host", h.Host, ns)
	}
	labels := map[string]any{vhost.ServiceLabel: h.Name, fleet.LabelTenant: h.Tenant, "app.kubernetes.io/managed-by": workload.FieldManager}
	service := map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": h.Host, "namespace": ns, "labels": labels},
		"spec": map[string]any{"type": "ClusterIP", "ports": []any{map[string]any{"name": "tcp", "port": int64(h.Port), "protocol": "TCP", "targetPort": int64(port)}}}}
	made, err := k.applyHost(ctx, serviceResource, service)
	if err != nil {
		return err
	}
	family := "IPv4"
	if ip := net.ParseIP(address); ip.To4() == nil {
		family = "IPv6"
	}
	ofSlice := map[string]any{discoveryv1.LabelServiceName: h.Host, discoveryv1.LabelManagedBy: workload.FieldManager}
	for key, v := range labels {
		ofSlice[key] = v
	}
	// It goes with its Service, whoever removes that.
	owner := map[string]any{"apiVersion": "v1", "kind": "Service", "name": h.Host, "uid": string(made.GetUID())}
	_, err = k.applyHost(ctx, sliceResource, map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata":    map[string]any{"name": h.Host + sliceSuffix, "namespace": ns, "labels": ofSlice, "ownerReferences": []any{owner}},
		"addressType": family,
		"endpoints":   []any{map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": true}}},
		"ports":       []any{map[string]any{"name": "tcp", "port": int64(port), "protocol": "TCP"}}})
	return err
}

func (k *Kube) applyHost(ctx context.Context, gvr schema.GroupVersionResource, object map[string]any) (*unstructured.Unstructured, error) {
	return k.cluster.apply(ctx, gvr, &unstructured.Unstructured{Object: object}, true, false)
}

func (k *Kube) dropSlice(ctx context.Context, ns, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := k.cluster.dyn.Resource(sliceResource).Namespace(ns).Delete(ctx, host+sliceSuffix, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// unpublish removes what stands for hosts that are not among those kept.
func (k *Kube) unpublish(ctx context.Context, kept map[string]bool) error {
	resources := []schema.GroupVersionResource{sliceResource, serviceResource}
	if !k.opts.VirtualHosts {
		resources = resources[1:] // the right to slices is theirs alone; those go with their Services
	}
	for _, gvr := range resources {
		lctx, cancel := context.WithTimeout(ctx, callTimeout)
		list, err := k.cluster.meta.Resource(gvr).List(lctx, metav1.ListOptions{LabelSelector: vhost.ServiceLabel})
		cancel()
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			name := o.Name
			if gvr == sliceResource {
				name = o.Labels[discoveryv1.LabelServiceName]
			}
			if kept[o.Namespace+"/"+name] {
				continue
			}
			dctx, cancel := context.WithTimeout(ctx, callTimeout)
			uid := o.UID
			err := k.cluster.dyn.Resource(gvr).Namespace(o.Namespace).Delete(dctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
			cancel()
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return nil
}

// Dial implements hosts.Site: it connects with a Service that control put on the cluster,
// and with no other.
func (k *Kube) Dial(ctx context.Context, h *vhost.Host) (net.Conn, error) {
	s, err := k.cluster.core.Services(h.SiteNamespace()).Get(ctx, h.Service, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.New("it is not on this site")
	case err != nil:
		return nil, err
	case s.Labels[workload.Owned] != "true" || s.Labels[vhost.ServiceLabel] != "":
		return nil, errors.New("it was not put there by the fleet")
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return nil, errors.New("it leads out of the cluster")
	}
	var d net.Dialer
	if ip := s.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
		return d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(h.ServicePort)))
	}
	addrs, err := k.endpoints(ctx, s, h.ServicePort)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", a); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// endpoints of a Service without an address of its own, those that are ready.
func (k *Kube) endpoints(ctx context.Context, s *corev1.Service, port int) ([]string, error) {
	name, ok := "", false
	for _, p := range s.Spec.Ports {
		if int(p.Port) == port {
			name, ok = p.Name, true
		}
	}
	if !ok {
		return nil, fmt.Errorf("it has no port %d", port)
	}
	list, err := k.cluster.dyn.Resource(sliceResource).Namespace(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		var slice discoveryv1.EndpointSlice
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &slice); err != nil {
			return nil, err
		}
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name != nil && *p.Name != name || p.Name == nil && name != "" {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					for _, a := range e.Addresses {
						out = append(out, net.JoinHostPort(a, strconv.Itoa(int(*p.Port))))
					}
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("none of its pods is ready")
	}
	return out, nil
}
