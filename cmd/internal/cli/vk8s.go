package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	siterender "muster.dev/muster/control/desired/render"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/workload"
)

func vk8sCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "vk8s", Short: "Virtual Kubernetes: use one with kubectl, and see what became of it on sites"}
	cmd.AddCommand(vk8sKubeconfigCmd(g), vk8sStatusCmd(g), vk8sDiffCmd(g), vk8sRenderCmd(g))
	return cmd
}

func vk8sRenderCmd(g *Globals) *cobra.Command {
	var site, format string
	var all bool
	cmd := &cobra.Command{
		Use: "render NAMESPACE/NAME [KIND/NAME]", Short: "Show what a site gets: an object, or all of them", Args: cobra.RangeArgs(1, 2),
		Long: `Show an object as a site gets it: with its flavor, with the Override that names the
site, and without what the control plane added for itself. Nothing is asked of the site.
It is worked out here, from what you may read: objects that you may not read, such as
Secrets for a viewer, are left out, and so said.`,
		Example: `  muster vk8s render shop/vk8s deployment/web --site paris-07
  muster vk8s render shop/vk8s --site paris-07 --all-items
  muster vk8s render shop/vk8s deployment/web --site paris-07 | kubectl --context paris-07 diff -f -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case site == "":
				return errors.New("name the site with --site")
			case all == (len(args) == 2):
				return errors.New("want either KIND/NAME, such as deployment/web, or --all-items")
			case format != "yaml" && format != "json":
				return fmt.Errorf("--output %q: want yaml or json", format)
			}
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			r, err := readSpace(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			for _, what := range r.unread {
				fmt.Fprintf(cmd.ErrOrStderr(), "left out: %s, which you may not read\n", what)
			}
			item := ""
			if !all {
				if item, err = r.item(c.RESTMapper(), args[1]); err != nil {
					return err
				}
			}
			return r.print(cmd.Context(), cmd.OutOrStdout(), c, site, item, format)
		},
	}
	cmd.Flags().StringVar(&site, "site", "", "name of the site")
	cmd.Flags().BoolVar(&all, "all-items", false, "all that the site gets of the namespace, the namespace itself included")
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "yaml or json")
	g.AddFlags(cmd)
	return cmd
}

// space is a namespace with a virtual Kubernetes, as far as the user may read it.
type space struct {
	tenant    v1alpha1.Tenant
	namespace string // in Kubernetes
	offered   *offered.Set
	rendered  *siterender.Space
	unread    []string
}

// findVirtualKubernetes returns the one that NAMESPACE/NAME means.
func findVirtualKubernetes(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, name string) (*v1alpha1.VirtualKubernetes, v1alpha1.Tenant, error) {
	ns, short, ok := strings.Cut(name, "/")
	if !ok || ns == "" || short == "" {
		return nil, v1alpha1.Tenant{}, fmt.Errorf("%q: want NAMESPACE/NAME of a virtual Kubernetes, such as shop/vk8s", name)
	}
	var with []v1alpha1.Tenant
	for _, t := range tenants { // its full name is known, too
		if own, ok := strings.CutPrefix(ns, t.Name+"-"); ok && slices.Contains(namespacesOf(t), ns) && !slices.Contains(namespacesOf(t), t.Name+"-"+ns) {
			ns = own
		}
	}
	for _, t := range tenants {
		if slices.Contains(namespacesOf(t), t.Name+"-"+ns) {
			with = append(with, t)
		}
	}
	if len(with) == 0 {
		return nil, v1alpha1.Tenant{}, fmt.Errorf("virtual Kubernetes %s: %s has no namespace %q; `muster describe tenant` lists them", name, strings.Join(tenantNames(tenants), ", "), ns)
	}
	vk, tenant, err := find(ctx, c, with, "virtual Kubernetes", "virtualkubernetes", name, func() *v1alpha1.VirtualKubernetes { return &v1alpha1.VirtualKubernetes{} },
		func(tenant string) client.ObjectKey {
			return client.ObjectKey{Namespace: tenant + "-" + ns, Name: short}
		})
	if err != nil {
		return nil, v1alpha1.Tenant{}, err
	}
	i := slices.IndexFunc(with, func(t v1alpha1.Tenant) bool { return t.Name == tenant })
	return vk, with[i], nil
}

// readSpace reads all that is in the namespace.
func readSpace(ctx context.Context, c client.Client, tenants []v1alpha1.Tenant, name string) (*space, error) {
	vk, tenant, err := findVirtualKubernetes(ctx, c, tenants, name)
	if err != nil {
		return nil, err
	}
	r := &space{tenant: tenant, namespace: vk.Namespace, rendered: siterender.NewSpace(tenant.Name, vk.Namespace)}
	short, _ := siterender.Short(tenant.Name, vk.Namespace)
	where, err := siterender.VirtualSite(vk.Spec.DefaultVirtualSite, short)
	if err != nil {
		return nil, fmt.Errorf("virtual Kubernetes %s: spec.defaultVirtualSite: %w", name, err)
	}
	r.rendered.Configure(siterender.Settings{DefaultVirtualSite: where, PodSecurity: tenant.Spec.PodSecurity, Quotas: tenant.Spec.SiteQuotas})
	var overrides v1alpha1.OverrideList
	if err := c.List(ctx, &overrides, client.InNamespace(r.namespace)); err != nil {
		return nil, fmt.Errorf("list Overrides: %w", err)
	}
	for i := range overrides.Items {
		r.rendered.SetOverride(overrides.Items[i].Name, &overrides.Items[i].Spec)
	}
	var rollouts v1alpha1.RolloutStateList
	if err := c.List(ctx, &rollouts, client.InNamespace(r.namespace)); err != nil {
		return nil, fmt.Errorf("list the states of rollouts: %w", err)
	}
	for i := range rollouts.Items {
		r.rendered.SetRollout(rollouts.Items[i].Name, 0, &rollouts.Items[i].Spec, hold.Ended(&rollouts.Items[i]))
	}
	if err := r.kinds(ctx, c); err != nil {
		return nil, err
	}
	for _, kind := range r.offered.Kinds() {
		if err := r.read(ctx, c, kind); err != nil {
			return nil, err
		}
	}
	for _, name := range r.rendered.WaitsFor() {
		r.rendered.NoRollout(name)
	}
	return r, nil
}

// kinds are the stock ones, and those of granted CRDs for who may read CRDs.
func (r *space) kinds(ctx context.Context, c client.Client) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	err := c.List(ctx, list, client.MatchingLabels{offered.LabelGranted: offered.Granted})
	if apierrors.IsForbidden(err) {
		r.unread = append(r.unread, "objects of granted CRDs")
	} else if err != nil {
		return fmt.Errorf("list granted CRDs: %w", err)
	}
	var granted []offered.Kind
	for i := range list.Items {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &crd); err != nil {
			return fmt.Errorf("CRD %s: %w", list.Items[i].GetName(), err)
		}
		if kind, err := offered.FromCRD(&crd); err == nil {
			granted = append(granted, kind)
		}
	}
	r.offered = offered.NewSet(granted...)
	return nil
}

func (r *space) read(ctx context.Context, c client.Client, kind offered.Kind) error {
	list := &unstructured.UnstructuredList{}
	gvk := kind.GroupVersionKind()
	gvk.Kind += "List"
	list.SetGroupVersionKind(gvk)
	err := c.List(ctx, list, client.InNamespace(r.namespace))
	if apierrors.IsForbidden(err) || meta.IsNoMatchError(err) {
		r.unread = append(r.unread, kind.Resource)
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", kind.Resource, err)
	}
	for i := range list.Items {
		if _, err := r.rendered.Set(kind, 0, list.Items[i].Object); err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, list.Items[i].GetName(), err)
		}
	}
	return nil
}

// item is the name on a site of KIND/NAME as kubectl takes it: a kind, a resource or its
// short name, with or without the group.
func (r *space) item(mapper meta.RESTMapper, name string) (string, error) {
	typed, object, ok := strings.Cut(name, "/")
	if !ok || typed == "" || object == "" {
		return "", fmt.Errorf("%q: want KIND/NAME, such as deployment/web", name)
	}
	resource, group, _ := strings.Cut(strings.ToLower(typed), ".")
	for _, k := range r.offered.Kinds() {
		if group != "" && group != k.Group {
			continue
		}
		if resource == strings.ToLower(k.Kind) || resource == k.Resource || resource == k.Short {
			return workload.ItemName(k.Group, k.Kind, r.namespace, object), nil
		}
	}
	if gvk, err := mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: resource}); err == nil {
		return "", fmt.Errorf("a %s is not carried to sites; these are: %s", gvk.Kind, strings.Join(r.offered.Names(), ", "))
	}
	return "", fmt.Errorf("there is no kind %q; these are carried to sites: %s", typed, strings.Join(r.offered.Names(), ", "))
}

// memberships are the virtual sites that a site belongs to.
func (r *space) memberships(ctx context.Context, c client.Client, name string) ([]string, error) {
	var site v1alpha1.Site
	if err := c.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(r.tenant.Name), Name: name}, &site); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no site %s; `muster get sites` lists them", name)
	} else if err != nil {
		return nil, fmt.Errorf("site %s: %w", name, err)
	}
	if !site.Spec.Approved || site.Spec.Decommissioned {
		return nil, fmt.Errorf("site %s gets nothing: it is not approved, or decommissioned", name)
	}
	var out []string
	for _, ns := range namespacesOf(r.tenant) {
		short, _ := siterender.Short(r.tenant.Name, ns)
		var list v1alpha1.VirtualSiteList
		if err := c.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return nil, fmt.Errorf("list virtual sites: %w", err)
		}
		for i := range list.Items {
			sel, err := metav1.LabelSelectorAsSelector(&list.Items[i].Spec.SiteSelector)
			if err == nil && sel.Matches(labels.Set(site.Labels)) {
				out = append(out, short+"/"+list.Items[i].Name)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// print writes one item, or with item "" all.
func (r *space) print(ctx context.Context, w io.Writer, c client.Client, site, item, format string) error {
	in, err := r.memberships(ctx, c, site)
	if err != nil {
		return err
	}
	belongs := "it belongs to no virtual site"
	if len(in) > 0 {
		belongs = "it belongs to " + strings.Join(in, ", ")
	}
	list := r.rendered.On(site, in)
	if list == nil {
		return fmt.Errorf("site %s gets nothing of the namespace: %s, and none of the namespace's virtual sites is among them", site, belongs)
	}
	n := 0
	for _, p := range list.Pieces {
		if item != "" && p.Item.Name != item {
			continue
		}
		n++
		if err := printPiece(w, p, format, n > 1); err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("site %s does not get %s: there is none of that name, or it goes to other virtual sites; %s", site, item, belongs)
	}
	return nil
}

func printPiece(w io.Writer, p *siterender.Piece, format string, more bool) error {
	out := p.Blob
	var err error
	switch format {
	case "yaml":
		if more {
			fmt.Fprintln(w, "---")
		}
		out, err = yaml.JSONToYAML(p.Blob)
	case "json":
		if out, err = json.MarshalIndent(json.RawMessage(p.Blob), "", "  "); err == nil {
			out = append(out, '\n')
		}
	}
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}
