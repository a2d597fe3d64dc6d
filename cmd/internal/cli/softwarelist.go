package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

func softwareListCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [COMPONENT]", Aliases: []string{"ls"}, Short: "Versions, and how many sites run which", Args: cobra.MaximumNArgs(1),
		Long: `List the released versions, newest first: how large their files are, how many sites run each
and on how many it was tried and went back.`,
		Example: "  muster software list\n  muster software list agent -o wide",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			t := table{header: []string{"TENANT", "COMPONENT", "VERSION", "FILES", "RUN", "WANTED", "FAILED", "STATE", "AGE", "REQUIRES", "NOTES"}, wide: 9}
			items := []client.Object{}
			for _, tenant := range tenants {
				versions, sites, err := softwareOf(cmd.Context(), c, tenant.Name)
				if err != nil {
					return err
				}
				for i := range versions {
					v := &versions[i]
					if len(args) > 0 && string(v.Spec.Component) != args[0] {
						continue
					}
					gvk, err := c.GroupVersionKindFor(v)
					if err != nil {
						return err
					}
					v.SetGroupVersionKind(gvk)
					items = append(items, v)
					t.rows = append(t.rows, versionRow(tenant.Name, v, sites))
				}
			}
			return g.print(cmd.OutOrStdout(), objects(items), t)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"os", "agent", "platform"}, cobra.ShellCompDirectiveNoFileComp),
	}
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// softwareOf are the versions of a tenant, by component and newest first, and its sites.
func softwareOf(ctx context.Context, c client.Client, tenant string) ([]v1alpha1.SoftwareVersion, []v1alpha1.Site, error) {
	var versions v1alpha1.SoftwareVersionList
	var sites v1alpha1.SiteList
	in := client.InNamespace(fleet.SystemNamespace(tenant))
	if err := errors.Join(c.List(ctx, &versions, in), c.List(ctx, &sites, in)); err != nil {
		return nil, nil, fmt.Errorf("tenant %s: %w", tenant, err)
	}
	slices.SortFunc(versions.Items, func(a, b v1alpha1.SoftwareVersion) int {
		if d := strings.Compare(string(a.Spec.Component), string(b.Spec.Component)); d != 0 {
			return d
		}
		x, errX := version.ParseSemantic(a.Spec.Version)
		y, errY := version.ParseSemantic(b.Spec.Version)
		if errX != nil || errY != nil || x.EqualTo(y) {
			return strings.Compare(b.Spec.Version, a.Spec.Version)
		}
		if x.LessThan(y) {
			return 1
		}
		return -1
	})
	return versions.Items, sites.Items, nil
}

func versionRow(tenant string, v *v1alpha1.SoftwareVersion, sites []v1alpha1.Site) []string {
	var run, wanted, failed int
	for i := range sites {
		for _, s := range sites[i].Status.Software {
			if s.Component != v.Spec.Component {
				continue
			}
			if s.Running == v.Spec.Version {
				run++
			}
			switch {
			case s.Wanted != v.Spec.Version:
			case s.State == v1alpha1.SoftwareFailed:
				failed++
			case s.Running != v.Spec.Version:
				wanted++
			}
		}
	}
	var files, requires []string
	for _, b := range v.Spec.Bundles {
		files = append(files, b.Architecture+" "+bytesText(float64(b.Size)))
	}
	for _, c := range []v1alpha1.SoftwareComponent{v1alpha1.SoftwareAgent, v1alpha1.SoftwareOS, v1alpha1.SoftwarePlatform} {
		if r := v.Spec.Requires[c]; r != "" {
			requires = append(requires, string(c)+" "+r)
		}
	}
	state := "released"
	if v.Spec.Withdrawn != "" {
		state = "withdrawn: " + v.Spec.Withdrawn
	}
	created := v.CreationTimestamp
	return []string{tenant, string(v.Spec.Component), v.Spec.Version, strings.Join(files, ", "), fmt.Sprint(run), fmt.Sprint(wanted), fmt.Sprint(failed), state, age(&created), orDash(strings.Join(requires, ", ")), orDash(v.Spec.Notes)}
}

func softwareWithdrawCmd(g *Globals) *cobra.Command {
	s := &softwareRepo{g: g}
	var reason string
	cmd := &cobra.Command{
		Use: "withdraw COMPONENT VERSION", Short: "Let no site begin to install a version any more", Args: cobra.ExactArgs(2),
		Long: `Mark a version as withdrawn, with the reason: no site begins to install it any more. Sites
that run it keep it; to move them, roll out another version.

With --keys it is taken out of the signed repository as well, so that no site would trust it
whatever control says: that is for a version that must not be used by anybody, and for all
tenants.`,
		Example: "  muster software withdraw agent 1.4.2 --reason 'leaks file descriptors; 1.4.3 does not'\n  muster software withdraw os 2.1.0 --reason stolen --keys /media/stick/muster --all-tenants",
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return errors.New("say why with --reason; sites and people are shown it")
			}
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			if len(tenants) > 1 && !g.AllTenants {
				return fmt.Errorf("whose is it? Name a tenant with --tenant, or take --all-tenants: %s", strings.Join(tenantNames(tenants), ", "))
			}
			name, found := args[0]+"-"+args[1], 0
			for _, t := range tenants {
				v := &v1alpha1.SoftwareVersion{}
				err := c.Get(cmd.Context(), client.ObjectKey{Namespace: fleet.SystemNamespace(t.Name), Name: name}, v)
				if client.IgnoreNotFound(err) != nil {
					return err
				} else if err != nil {
					continue
				}
				found++
				before := v.DeepCopy()
				v.Spec.Withdrawn = reason
				if err := c.Patch(cmd.Context(), v, client.MergeFrom(before)); err != nil {
					return fmt.Errorf("tenant %s: %w", t.Name, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s of tenant %s is withdrawn\n", args[0], args[1], t.Name)
			}
			if len(s.keys) > 0 {
				return s.takeOut(cmd, args[0], args[1])
			}
			if found == 0 {
				return fmt.Errorf("%s: no version %s of %s; `muster software list` shows what there is", strings.Join(tenantNames(tenants), ", "), args[1], args[0])
			}
			return nil
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why; shown beside the version and by sites that were about to install it")
	g.AddFlags(cmd)
	return cmd
}

// takeOut takes a version's files out of what is signed.
func (s *softwareRepo) takeOut(cmd *cobra.Command, component, number string) error {
	r, at, err := s.standing(cmd)
	if err != nil {
		return err
	}
	if err := s.needTargets(r); err != nil {
		return err
	}
	n := 0
	for _, t := range at.Targets {
		if t.Component != component || t.Version != number {
			continue
		}
		if err := r.Withdraw(cmd.Context(), t.Name); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return fmt.Errorf("the repository at %s has no %s %s; nothing was taken out of it", s.repository, component, number)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d files are out of the repository; no site trusts them any more\n", n)
	s.whenSeen(cmd.OutOrStdout(), r)
	return nil
}
