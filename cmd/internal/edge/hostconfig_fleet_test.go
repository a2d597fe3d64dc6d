package edge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakehost"
)

// fleetClient is what a fleet's operator does in the system namespace of a tenant.
type fleetClient struct {
	t    *testing.T
	kind func(plural string) dynamic.ResourceInterface
}

func (f *fleetClient) create(kind, plural, name string, spec map[string]any) {
	f.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	if _, err := f.kind(plural).Create(f.t.Context(), o, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// rollout begins one of a policy's spec, whose first wave is the first, and whose second all.
func (f *fleetClient) rollout(name, kind, object string, spec, first map[string]any) {
	f.t.Helper()
	f.create("Rollout", "rollouts", name, map[string]any{
		"changes":  []any{map[string]any{"apiVersion": "muster.dev/v1alpha1", "kind": kind, "name": object, "content": map[string]any{"spec": spec}}},
		"strategy": map[string]any{"type": "Canary", "waves": []any{first, map[string]any{"percent": int64(100)}}},
		"gates":    []any{map[string]any{"name": "ready", "ready": map[string]any{"percent": int64(100)}}},
		"soak":     "0s", "onFailure": "RollBackAll",
		"budget": map[string]any{"maxFailed": "0", "maxFailedInWave": "0", "readyWithin": "10m"},
	})
}

// ends waits for the phase in which a rollout ends, and returns what was decided. look is
// called before each look at the rollout, and what it returns with the wave that it is in.
func (f *fleetClient) ends(name, phase string, look func() func(wave int64)) (decisions string) {
	f.t.Helper()
	testkit.EventuallyWithin(f.t, name+" is "+phase, 8*time.Minute, func() error {
		check := look()
		o, err := f.kind("rollouts").Get(f.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		wave, _, _ := unstructured.NestedInt64(o.Object, "status", "wave")
		check(wave)
		is, _, _ := unstructured.NestedString(o.Object, "status", "phase")
		said, _, _ := unstructured.NestedSlice(o.Object, "status", "decisions")
		if decisions = fmt.Sprint(said...); is == "Invalid" {
			f.t.Fatalf("%s: %v", is, o.Object["status"])
		} else if is != phase {
			return fmt.Errorf("%s: %v", is, o.Object["status"])
		}
		return nil
	})
	return decisions
}

// rollOutHosts takes the configuration of hosts over two sites: tried dry, then for all, and
// then one that a host can't have, which the first gives back and the second never gets.
func (f *fleetClient) rollOutHosts(sites []string, hosts map[string]*fakehost.Host) {
	f.t.Helper()
	const kind, plural, object = "HostConfiguration", "hostconfigurations", "stores"
	spec := func(more map[string]any) map[string]any {
		out := map[string]any{"siteSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "DoesNotExist"}}}}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	names := []any{map[string]any{"address": "192.0.2.10", "names": []any{"db"}}}
	f.create(kind, plural, object, spec(map[string]any{"dryRun": true, "hosts": names}))
	condition := func(site, typ string) (status, message string) {
		o, err := f.kind("sites").Get(f.t.Context(), site, metav1.GetOptions{})
		if err != nil {
			return "", err.Error()
		}
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, x := range list {
			if c, ok := x.(map[string]any); ok && c["type"] == typ {
				status, _ = c["status"].(string)
				message, _ = c["message"].(string)
			}
		}
		return status, message
	}
	for _, site := range sites {
		testkit.Eventually(f.t, site+" says what the dry run would be", func() error {
			if status, message := condition(site, "HostConfigurationDryRun"); status != "True" || !strings.Contains(message, "db") {
				return fmt.Errorf("%s: %s", status, message)
			}
			return nil
		})
		if h := hosts[site].Read("etc/hosts"); strings.Contains(h, "192.0.2.10") {
			f.t.Errorf("%s: a dry run wrote %q", site, h)
		}
	}

	has := func(path, text string) (sites []string) {
		for site, h := range hosts {
			if strings.Contains(h.Read(path), text) {
				sites = append(sites, site)
			}
		}
		return sites
	}
	one := map[string]any{"count": int64(1)}
	f.rollout("hosts", kind, object, spec(map[string]any{"hosts": names}), one)
	f.ends("hosts", "Completed", func() func(int64) {
		had := has("etc/hosts", "192.0.2.10 db")
		return func(wave int64) {
			if wave == 1 && len(had) > 1 {
				f.t.Fatalf("in its first wave, of one site, it is at %v", had)
			}
		}
	})
	if had := has("etc/hosts", "192.0.2.10 db"); len(had) != len(sites) {
		f.t.Errorf("in the end it is at %v", had)
	}
	tried := map[string]bool{}
	f.rollout("hosts-bad", kind, object, spec(map[string]any{"hosts": names, "sysctls": map[string]any{"net.core.nonesuch": "1"}}), one)
	said := f.ends("hosts-bad", "RolledBack", func() func(int64) {
		for _, site := range sites {
			if status, message := condition(site, "HostConfigurationApplied"); status == "False" && strings.Contains(message, "nonesuch") {
				tried[site] = true
			}
		}
		return func(int64) {}
	})
	if len(tried) > 1 || !strings.Contains(said, "this kernel has no such setting") {
		f.t.Errorf("the bad one was tried at %v: %s", tried, said)
	}
	for _, site := range sites {
		testkit.Eventually(f.t, site+" has what it had", func() error {
			if status, message := condition(site, "HostConfigurationApplied"); status != "True" {
				return fmt.Errorf("%s: %s", status, message)
			}
			return nil
		})
	}
	if had := has("etc/hosts", "192.0.2.10 db"); len(had) != len(sites) {
		f.t.Errorf("after a bad one it is at %v", had)
	}
	o, err := f.kind(plural).Get(f.t.Context(), object, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	if left, bad, _ := unstructured.NestedMap(o.Object, "spec", "sysctls"); bad {
		f.t.Errorf("what is bad still stands in the object: %v", left)
	}
}
