package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/few"
	"muster.dev/muster/internal/wire"
)

// difference is one object on one site that is not as it should be there.
type difference struct {
	Kind  string `json:"kind"`
	Group string `json:"group,omitempty"`
	Name  string `json:"name"`
	wire.WorkloadSite
}

func vk8sDiffCmd(g *Globals) *cobra.Command {
	var site string
	cmd := &cobra.Command{
		Use: "diff NAMESPACE/NAME [KIND/NAME]", Short: "Show in which fields sites have something else than they should",
		Long: `Show each object that a site has not as it should be there, with the fields: what it has
not got yet, and what somebody changed on it. Objects of all kinds are compared that are
carried to sites. Sites that differ alike are one line; -o json has each with all of it.

Fields are named, and never what is in them; of a Secret no keys either, and older versions
of Secrets are not kept: that a site has one is told, by its digest. Of what you may not
read, it is told that fields are left out. What a site should have is shown by muster vk8s render. A site that
is not connected is told of by what it said last, and named.

The exit code is 0 if nothing differs, 1 if something does, and 2 on an error.`,
		Example: "  muster vk8s diff shop/vk8s\n  muster vk8s diff shop/vk8s deployment/web\n  muster vk8s diff shop/vk8s --site paris-07 -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			return orError(cobra.RangeArgs(1, 2)(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, away, err := g.differences(cmd.Context(), args, site)
			if err != nil {
				return orError(err)
			}
			if err := g.print(cmd.OutOrStdout(), found, diffTable(found)); err != nil {
				return orError(err)
			}
			sayAway(cmd.ErrOrStderr(), away)
			if len(found) > 0 {
				cmd.SilenceUsage = true
				return &Exit{Code: 1, Err: fmt.Errorf("%s", plural(len(found), "difference"))}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return orError(err) })
	cmd.Flags().StringVar(&site, "site", "", "compare what this site has, and no other")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// differences are those of an object, or of all, on all sites or one; away are the sites among
// those looked at that are not connected.
func (g *Globals) differences(ctx context.Context, args []string, site string) (found []difference, away []string, err error) {
	vk, err := g.virtualKubernetes(ctx, args[0])
	if err != nil {
		return nil, nil, err
	}
	paths, err := g.toCompare(ctx, vk, args[1:], site)
	if err != nil {
		return nil, nil, err
	}
	found = []difference{}
	for _, path := range paths {
		var w wire.Workload
		if err := g.report(ctx, vk, "workloads/"+path, &w, "fields", "1"); err != nil {
			return nil, nil, err
		}
		here := false
		for _, s := range w.Sites {
			if site != "" && s.Site != site {
				continue
			}
			here = true
			if s.Drifted || s.Digest != s.Wanted {
				found = append(found, difference{w.Kind, w.Group, w.Name, s})
			}
			if !s.Online {
				away = append(away, s.Site)
			}
		}
		if !here && site != "" && len(args) > 1 {
			return nil, nil, fmt.Errorf("site %s does not get %s; `muster vk8s status %s %s` lists the sites that do", site, args[1], args[0], args[1])
		}
	}
	slices.Sort(away)
	return found, slices.Compact(away), nil
}

// toCompare are the paths of what may differ somewhere, or can't be asked.
func (g *Globals) toCompare(ctx context.Context, vk *v1alpha1.VirtualKubernetes, object []string, site string) ([]string, error) {
	if len(object) > 0 {
		path, err := workloadPath(object[0], func() ([]wire.Workload, error) { return g.workloads(ctx, vk) })
		return []string{path}, err
	}
	var query []string
	if site != "" {
		query = []string{"site", site}
	}
	all, err := g.workloads(ctx, vk, query...)
	if err != nil {
		return nil, err
	}
	if site != "" && len(all) == 0 {
		return nil, fmt.Errorf("site %s gets nothing of this virtual Kubernetes; `muster get sites` lists the sites", site)
	}
	var paths []string
	for _, w := range all {
		if n := w.Counts; n.Ready < n.Sites || n.Drifted > 0 || n.Offline > 0 {
			paths = append(paths, workloadKey(w.Group, w.Kind)+"/"+w.Name)
		}
	}
	return paths, nil
}

// diffTable has a line for all sites on which an object differs alike.
func diffTable(found []difference) table {
	t := table{header: []string{"KIND", "NAME", "SITE", "ONLINE", "WANTED", "HAS", "DRIFTED", "STATE", "REASON", "FIELDS"}}
	at := map[string]int{}
	var names [][]string
	for _, d := range found {
		fields := strings.Join(d.Fields, ", ")
		switch {
		case d.Digest == "":
			fields = "all of it"
		case d.NoFields == wire.FieldsForbidden:
			fields = "left out: you may not get it"
		case d.NoFields == wire.FieldsNotKept:
			fields = "older version, no longer kept to compare"
		case fields == "":
			fields = "not known"
		}
		row := []string{d.Kind, d.Name, "", yesNo(d.Online), shortDigest(d.Wanted), shortDigest(d.Digest), yesNo(d.Drifted), d.State, orDash(d.Reason), fields}
		key := strings.Join(append([]string{d.Group}, row...), "\x00")
		i, there := at[key]
		if !there {
			i, at[key] = len(t.rows), len(t.rows)
			t.rows, names = append(t.rows, row), append(names, nil)
		}
		names[i] = append(names[i], d.Site)
	}
	for i, of := range names {
		t.rows[i][2] = fewNames(of)
	}
	return t
}

// fewNames are some names of many.
func fewNames(names []string) string {
	most := 3
	if len(names) == most+1 { // its name is no longer than that there is one more
		most++
	}
	return few.Of(names, most, ",")
}

// sayAway names the sites that could not be asked.
func sayAway(w io.Writer, away []string) {
	if len(away) > 0 {
		fmt.Fprintf(w, "not connected, and told of by what they said last: %s\n", strings.Join(away, ", "))
	}
}
