package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/vhost"
	"muster.dev/muster/internal/workload"
	"muster.dev/muster/loadtest/simcluster"
)

// The virtual host of the demo: sites that get what is new first have the prices, and
// stores ask for them.
const (
	prices     = "prices"
	priceList  = "price-list"
	askEvery   = 15 * time.Second
	asksAConn  = 20 // then the next one takes another connection
	pricesSize = 6 << 10
)

// virtualHosts are the Service with what serves it, and who reaches it.
func virtualHosts(at func(name string, annotations ...string) metav1.ObjectMeta, deployment func(meta metav1.ObjectMeta, image string, replicas int32) *appsv1.Deployment) []client.Object {
	where := []string{workload.VirtualSites, "shared/canary"}
	return []client.Object{
		deployment(at(priceList, where...), "registry.example/shop/price-list:1.2.0", 1),
		&corev1.Service{ObjectMeta: at(priceList, where...), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": priceList}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}},
		&v1alpha1.VirtualHost{ObjectMeta: at(prices), Spec: v1alpha1.VirtualHostSpec{Service: v1alpha1.VirtualHostService{Name: priceList, Port: 80}, VirtualSite: "shared/canary"}},
		&v1alpha1.AdvertisePolicy{ObjectMeta: at("stores"), Spec: v1alpha1.AdvertisePolicySpec{VirtualHost: prices, VirtualSites: []string{"shared/stores"}}},
	}
}

// servePrices is what the Service of every site leads to: one server, which is real.
func servePrices(env *role.Env) (addr string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	list := strings.Repeat("4011 bananas 1.29 EUR/kg\n", pricesSize/25)
	env.Serve("prices", ln, &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, list) })})
	return ln.Addr().String(), nil
}

// premises are what surrounds a simulated site's virtual hosts: Services of its cluster lead
// to a server of this process, and its shop asks for prices where the site reaches them.
// Ports, agents and what passes between the sites are real.
type premises struct {
	prices  string              // address of the server
	cluster *simcluster.Cluster // set before the site runs

	mu   sync.Mutex
	port int // of the host prices on this machine; 0: it is not advertised to the site
}

// Publish implements hosts.Site.
func (p *premises) Publish(_ context.Context, list []hosts.Published) (map[string]error, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.port = 0
	for _, h := range list {
		if h.Host.Key() == shop+"/"+prices {
			p.port = h.Port
		}
	}
	return nil, nil
}

// Dial implements hosts.Site.
func (p *premises) Dial(ctx context.Context, h *vhost.Host) (net.Conn, error) {
	if p.cluster.HeldDigest(workload.ItemName("", "Service", h.SiteNamespace(), h.Service)) == "" {
		return nil, errors.New("it is not on this site")
	}
	if h.Service != priceList {
		return nil, errors.New("connection refused: no pod of a simulated cluster listens")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", p.prices)
}

// shop asks for prices now and again, over a connection that it keeps for a while. What
// goes wrong is counted by the site's agent.
func (p *premises) shop(ctx context.Context) error {
	t := &http.Transport{}
	defer t.CloseIdleConnections()
	c := &http.Client{Transport: t, Timeout: 2 * askEvery}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		p.mu.Lock()
		port := p.port
		p.mu.Unlock()
		if n%asksAConn == 0 {
			t.CloseIdleConnections()
		}
		if port == 0 {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), nil)
		if err != nil {
			return err
		}
		if resp, err := c.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
			resp.Body.Close()
		}
	}
}
