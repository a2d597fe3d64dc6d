package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/cmd/internal/cli"
	"muster.dev/muster/cmd/internal/edge"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubesite"
)

// On a stock cluster the manifest's workloads come up by themselves, on every node what
// belongs there, and what discovery finds is them.
func TestManifestComesUp(t *testing.T) {
	k := kubesite.Start(t, kubesite.Options{Nodes: 2})
	c := startCentre(t, "stock")
	o := cli.ManifestOptions{Namespace: "muster-edge", Servers: []string{strings.TrimPrefix(c.URL(), "https://")}, CAHash: c.CAHash(), Token: token, Site: "stock", Features: cli.Features, Image: "muster-edge:v1"}
	list := apply(t, k.Config, o)
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
