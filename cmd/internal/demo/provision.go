package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/fleet"
)

// provisioner makes the objects of the demo, as a user would with kubectl.
type provisioner struct {
	kube client.Client
	c    config.Config
	dir  string
	log  *slog.Logger
}

// europe selects the simulated sites in Europe.
const europe = "region in (eu),kind notin (real)"

// virtualSites of the demo, in the shared namespace of the tenant.
var virtualSites = []struct{ name, description, selector string }{
	{"all", "Every site", ""},
	// This machine is no cluster: what is deployed to Europe would fail there.
	{"europe", "Sites in Europe", europe},
	{"americas", "Sites in North and South America", "region in (us,sa)"},
	{"asia-pacific", "Sites in Asia and Oceania", "region in (ap)"},
	{"stores", "Stores of model year 2016 or later", "kind=store,model-year notin (2015)"},
	{"chargers", "Charging stations", "kind=charger"},
	{"canary", "The first to get anything new", "canary"},
}

// objects makes the virtual sites, and the policy that lets this machine send more.
func (p *provisioner) objects(ctx context.Context) error {
	for _, v := range virtualSites {
		sel, err := metav1.ParseToLabelSelector(v.selector)
		if err != nil {
			return err
		}
		obj := &v1alpha1.VirtualSite{ObjectMeta: metav1.ObjectMeta{Name: v.name, Namespace: fleet.SharedNamespace(Tenant)},
			Spec: v1alpha1.VirtualSiteSpec{SiteSelector: *sel, Description: v.description}}
		if err := p.create(ctx, obj); err != nil {
			return err
		}
	}
	return p.create(ctx, &v1alpha1.CollectionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "muster-roles", Namespace: fleet.SystemNamespace(Tenant)},
		Spec: v1alpha1.CollectionPolicySpec{
			SiteSelector: metav1.LabelSelector{MatchLabels: map[string]string{"city": thisMachine}}, Priority: 10,
			Allow: v1alpha1.MetricAllow{Patterns: []string{"muster_.*", "process_(resident_memory_bytes|cpu_seconds_total)", "go_goroutines"}},
		},
	})
}

// create makes an object, and waits for its namespace, which the tenant controller
// makes a moment after the tenant.
func (p *provisioner) create(ctx context.Context, obj client.Object) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := p.kube.Create(ctx, obj)
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !apierrors.IsNotFound(err) || time.Now().After(deadline) {
			return fmt.Errorf("make %T %s: %w", obj, obj.GetName(), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// token returns the registration token for sites of a region, with more labels if there are
// any; it is made once and kept for the next start.
func (p *provisioner) token(ctx context.Context, region string, autoApprove bool, more ...string) (string, error) {
	name := "demo-" + region
	labels := map[string]string{fleet.LabelRegion: region}
	for i := 0; i+1 < len(more); i += 2 {
		labels[more[i]] = more[i+1]
		name += "-" + more[i+1]
	}
	if !autoApprove {
		name += "-manual"
	}
	file := filepath.Join(p.dir, "tokens", name)
	if b, err := os.ReadFile(file); err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	token, err := cli.CreateToken(ctx, p.kube, Tenant, name, cli.TokenOptions{AutoApprove: autoApprove, SiteLabels: labels})
	if err != nil {
		return "", err
	}
	return token, errors.Join(disk.MkdirAll(disk.OS{}, filepath.Join(p.dir, "tokens"), 0o700), atomicfile.Write(file, []byte(token+"\n"), 0o600))
}

// thisMachine writes the configuration of the real muster-edge.
func (p *provisioner) thisMachine(gateways []string, caHash, token string) error {
	e := edge.DefaultConfig()
	e.StateDir = filepath.Join(p.dir, thisMachine)
	e.Gateways, e.CAHash, e.Token, e.Site = gateways, caHash, token, thisMachine
	var targets []any
	for _, r := range config.Roles {
		for _, i := range r.Instances(&p.c) {
			targets = append(targets, i.Ops)
		}
	}
	job := map[string]any{"job_name": "muster", "static_configs": []any{map[string]any{"targets": targets}}}
	if !p.c.InsecureLoopback {
		ca, err := filepath.Abs(p.c.TrustFile(config.Reader))
		if err != nil {
			return err
		}
		job["scheme"], job["tls_config"] = "https", map[string]any{"ca_file": ca}
	}
	e.ScrapeConfigs = []any{job}
	return writeYAML(filepath.Join(p.dir, thisMachineConfig), e)
}

// places labels the sites and puts them on the map as they register: what a person
// would type on the registrations page.
func (p *provisioner) places(ctx context.Context, plans []plannedSite) error {
	todo := map[string]plannedSite{thisMachine: {labels: map[string]string{"city": thisMachine, "kind": "real"}}}
	here := todo[thisMachine]
	here.city.Label, here.city.Latitude, here.city.Longitude = "This machine", 50.11, 8.68
	todo[thisMachine] = here
	for _, plan := range plans {
		todo[plan.city.Name] = plan
	}
	for len(todo) > 0 {
		var list v1alpha1.SiteList
		if err := p.kube.List(ctx, &list, client.InNamespace(fleet.SystemNamespace(Tenant))); err == nil {
			for i := range list.Items {
				s := &list.Items[i]
				plan, ok := todo[s.Name]
				if !ok {
					continue
				}
				if err := p.place(ctx, s, plan); err != nil {
					p.log.Warn("place a site", "site", s.Name, "err", err)
					continue
				}
				delete(todo, s.Name)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (p *provisioner) place(ctx context.Context, s *v1alpha1.Site, plan plannedSite) error {
	if s.Spec.Place != nil {
		return nil
	}
	before := s.DeepCopy()
	deg := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
	address := plan.city.Label
	if plan.city.Country != "" {
		address += ", " + plan.city.Country
	}
	s.Spec.Place = &v1alpha1.Place{Latitude: deg(plan.city.Latitude), Longitude: deg(plan.city.Longitude), Address: address}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	for k, v := range plan.labels {
		s.Labels[k] = v
	}
	return p.kube.Patch(ctx, s, client.MergeFrom(before))
}
