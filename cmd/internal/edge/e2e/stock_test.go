package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/guides"
	"muster.dev/muster/internal/testkit/kubesite"
)

// asInTheGuide is the manifest that "Your first cluster in five minutes" has people print, with
// this centre's address, hash and token in their places.
func asInTheGuide(t *testing.T, c *centre) string {
	t.Helper()
	for _, typed := range guides.Below(t, "docs/getting-started.md", "## Your first cluster in five minutes", "muster") {
		if !strings.HasPrefix(strings.Join(typed.Args, " "), "site manifest ") {
			continue
		}
		for i, a := range typed.Args {
			typed.Args[i] = cmp.Or(map[string]string{"gw.example.com:7443": strings.TrimPrefix(c.URL(), "https://"), "sha256:…": c.CAHash(), "muster1.acme.…": token}[a], a)
		}
		var out bytes.Buffer
		root := &cobra.Command{Use: "muster"}
		root.AddCommand(cli.Commands(&cli.Globals{})...)
		root.SetArgs(typed.Args)
		root.SetOut(&out)
		if err := root.Execute(); err != nil {
			t.Fatalf("%s: %s: %v", typed.At, typed.Line, err)
		}
		return out.String()
	}
	t.Fatal("docs/getting-started.md has nobody print a manifest")
	return ""
}

// On a stock cluster what the guide has people apply, and then apply again with all features,
// comes up by itself, on every node what belongs there, and what discovery finds is that.
func TestManifestComesUp(t *testing.T) {
	k := kubesite.Start(t, kubesite.Options{Nodes: 2})
	const site = "paris-07" // the guide's
	c := startCentre(t, site)
	first := applyText(t, k.Config, asInTheGuide(t, c))
	o := cli.ManifestOptions{Namespace: "muster-edge", Servers: []string{strings.TrimPrefix(c.URL(), "https://")}, CAHash: c.CAHash(), Token: token, Site: site, Features: cli.Features, Image: "muster-edge:v1"}
	list := apply(t, k.Config, o)
	for _, u := range first {
		if !slices.ContainsFunc(list, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == u.GetKind() && o.GetNamespace() == u.GetNamespace() && o.GetName() == u.GetName()
		}) {
			t.Errorf("%s %s of the guide's manifest is not among those of all features", u.GetKind(), u.GetName())
		}
	}
	testkit.Eventually(t, "all of it is up", func() error {
		var bad []string
		for ns, names := range map[string][]string{"muster-edge": {"muster-edge", "kube-state-metrics"}, "muster-edge-host": {"muster-edge-host", "muster-edge-logs"}} {
			for _, name := range names {
				var want, ready int32
				if ns == "muster-edge" {
					d, err := k.Client.AppsV1().Deployments(ns).Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					want, ready = 1, d.Status.AvailableReplicas
				} else {
					d, err := k.Client.AppsV1().DaemonSets(ns).Get(t.Context(), name, metav1.GetOptions{})
					if err != nil {
						return err
					}
					want, ready = 2, d.Status.NumberReady
				}
				if ready != want {
					bad = append(bad, fmt.Sprintf("%s: %d of %d", name, ready, want))
				}
			}
		}
		if len(bad) == 0 {
			return nil
		}
		events, err := k.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Type == "Warning" {
				bad = append(bad, e.InvolvedObject.Name+": "+e.Message)
			}
		}
		return errors.New(strings.Join(bad, "\n"))
	})

	conf := configOf(t, list, kubeconfigOf(t, k.Config, o.Namespace))
	m := run(t, conf)
	testkit.Eventually(t, "its targets are found", func() error {
		var b bytes.Buffer
		var st struct {
			Feeds struct {
				Jobs []struct {
					Job     string
					Targets int
				}
			}
		}
		if err := edge.PrintStatus(t.Context(), &b, conf, true); err != nil {
			return err
		}
		if err := json.Unmarshal(b.Bytes(), &st); err != nil {
			return err
		}
		got := map[string]int{}
		for _, j := range st.Feeds.Jobs {
			got[j.Job] = j.Targets
		}
		for job, want := range map[string]int{"kubelet": 2, "cadvisor": 2, "node": 2, "kube-state-metrics": 1} {
			if got[job] != want {
				return fmt.Errorf("%s has %d targets, want %d: %s\n%s", job, got[job], want, b.String(), m.status())
			}
		}
		return nil
	})
}
