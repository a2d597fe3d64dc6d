package rollout_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
	"muster.dev/muster/control/vk8s/sum"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// helmChart has one Deployment, whose image is a value.
const helmChart = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {ves.io/virtual-sites: shared/all}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: {{ .Values.image }}}]
`

// helm runs it as somebody on a machine of their own.
type helm struct {
	w            *world
	binary, home string
}

func (w *world) helm(binary string) helm {
	w.t.Helper()
	h := helm{w, binary, w.t.TempDir()}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: w.cfg.Host, CertificateAuthorityData: w.cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: w.cfg.BearerToken, ClientCertificateData: w.cfg.CertData, ClientKeyData: w.cfg.KeyData}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: w.tenant + "-shop"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, filepath.Join(h.home, "kubeconfig")); err != nil {
		w.t.Fatal(err)
	}
	for file, text := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "templates/web.yaml": helmChart} {
		file = filepath.Join(h.home, "chart", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return h
}

func (h helm) try(args string) (string, error) {
	cmd := exec.CommandContext(h.w.t.Context(), h.binary, strings.Fields(strings.ReplaceAll(args, "CHART", filepath.Join(h.home, "chart")))...)
	cmd.Env = []string{"HOME=" + h.home, "KUBECONFIG=" + filepath.Join(h.home, "kubeconfig"), "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// does has it succeed, and returns the rollout that the Deployment is under then.
func (h helm) does(args string) (rollout string) {
	h.w.t.Helper()
	if out, err := h.try(args); err != nil {
		h.w.t.Fatalf("helm %s: %v\n%s", args, err, out)
	}
	return h.w.rolloutOf("web")
}

// fails has it end with an error that has these words.
func (h helm) fails(args string, words ...string) (rollout string) {
	h.w.t.Helper()
	out, err := h.try(args)
	if err == nil {
		h.w.t.Fatalf("helm %s succeeds:\n%s", args, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			h.w.t.Errorf("helm %s does not say %q:\n%s", args, word, out)
		}
	}
	return h.w.rolloutOf("web")
}

func (w *world) rolloutOf(object string) string {
	w.t.Helper()
	var d appsv1.Deployment
	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.tenant + "-shop", Name: object}, &d); err != nil {
		w.t.Fatal(err)
	}
	return d.Annotations[v1alpha1.AnnotationRollout]
}

// sums has the status of the tenant's Deployments made of what its sites say, who are ready with
// what they should have.
func (w *world) sums() {
	w.t.Helper()
	informers, err := cache.New(w.cfg, cache.Options{Scheme: w.client.Scheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = informers.Start(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
	place := func(item string) (p sum.Placement, ok bool) {
		_, _, ns, name, err := workload.ParseItemName(item)
		var d appsv1.Deployment
		if err != nil || ns != w.tenant+"-shop" || w.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &d) != nil {
			return p, false
		}
		p = sum.Placement{Version: 1 << 62, Digests: map[fleet.SiteID]string{}, Held: map[fleet.SiteID]bool{}}
		st := &v1alpha1.RolloutState{}
		if under := d.Annotations[v1alpha1.AnnotationRollout]; under == "" || w.client.Get(ctx, client.ObjectKey{Namespace: ns, Name: under}, st) != nil {
			st = nil
		}
		kind, _ := hold.KindOf(offered.NewSet(), schema.GroupKind{Group: "apps", Kind: "Deployment"})
		for i := range sitesOfAWorld {
			id := fleet.SiteID{Tenant: w.tenant, Name: fmt.Sprintf("s%d", i)}
			p.Digests[id] = "own"
			if st != nil && st.Spec.Held {
				contents, has := hold.Find(&st.Spec, kind, name).Contents, st.Spec.Assigned()[id.Name]
				p.Held[id] = !hold.Same(contents[has], contents[len(contents)-1])
				p.Digests[id] = fmt.Sprint(has)
			}
		}
		p.Over = st != nil && hold.Ended(st)
		return p, true
	}
	c := sum.New(sum.Options{Cache: informers, Client: w.client, Every: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Items: func(string) []string { return nil },
		Online: func(fleet.SiteID) bool { return true }, Granted: func(schema.GroupKind) (offered.Kind, bool) { return offered.Kind{}, false }, Placed: place,
		States: func(item string) map[fleet.SiteID]*wire.WorkloadStatus {
			out := map[fleet.SiteID]*wire.WorkloadStatus{}
			p, _ := place(item)
			for id, digest := range p.Digests {
				out[id] = &wire.WorkloadStatus{Digest: digest, Wanted: digest, State: string(workload.Ready), Status: []byte(`{"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2}`)}
			}
			return out
		}})
	if err := c.Watch(ctx); err != nil {
		w.t.Fatal(err)
	}
	running.Go(func() { _ = c.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil { // sites move without a change of the Deployment
			c.TouchTenant(w.tenant)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// patient has the policy's first wave wait for a person, or not any more.
func (w *world) patient(approval bool) {
	w.t.Helper()
	p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful", Namespace: w.tenant + "-shop"}}
	testkit.Eventually(w.t, "change the policy", func() error {
		if err := w.client.Get(context.Background(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		p.Spec.Strategy.Waves[0].Approval = approval
		return w.client.Update(context.Background(), p)
	})
}

// Helm, of both kinds, as the writer of a workload that has a RolloutPolicy: what it does is a
// rollout by itself, what it does next takes over, and --wait means the rollout.
func TestHelmIsAnOrdinaryWriter(t *testing.T) {
	for name, binary := range map[string]func(testing.TB) string{"ro-helm3": kubectl.Helm3, "ro-helm4": kubectl.Helm} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, name)
			h := w.helm(binary(t))
			w.policy()
			w.control()
			w.sums()
			if under := h.does("install web CHART --set image=web:1 --wait --timeout 60s"); under != "" {
				t.Errorf("what is new is under %s", under)
			}
			done := h.does("upgrade web CHART --set image=web:2 --wait --timeout 60s")
			if had := w.sitesThatHad("web:2"); len(had) != sitesOfAWorld {
				t.Errorf("as --wait ends only %v have it", had)
			}
			w.becomes(done, v1alpha1.RolloutCompleted)

			// One that waits for people is waited for as long as was said, and the next takes over.
			w.patient(true)
			first := h.fails("upgrade web CHART --set image=web:3 --wait --timeout 5s")
			w.becomes(first, v1alpha1.RolloutProgressing, "approv")
			second := h.does("upgrade web CHART --set image=web:4")
			w.becomes(first, v1alpha1.RolloutSuperseded)
			w.becomes(second, v1alpha1.RolloutProgressing, "approv")
			w.patient(false)
			back := h.does("rollback web 2 --wait --timeout 60s")
			w.becomes(second, v1alpha1.RolloutSuperseded)
			w.becomes(back, v1alpha1.RolloutCompleted)
			if got := w.image("web"); got != "web:2" {
				t.Errorf("put back, the object has %s", got)
			}
			if had := w.sitesThatHad("web:4"); len(had) != 1 {
				t.Errorf("%v had what was taken over from", had)
			}

			// A bad one is put back, and that is no success.
			bad := h.fails("upgrade web CHART --set image=web:bad --wait --timeout 10s")
			w.becomes(bad, v1alpha1.RolloutRolledBack)
			if had := w.sitesThatHad("web:bad"); len(had) != 1 || w.image("web") != "web:bad" {
				t.Errorf("%v had it; the object has %s", had, w.image("web"))
			}
			fixed := h.does("upgrade web CHART --set image=web:5 --wait --timeout 60s")
			w.becomes(fixed, v1alpha1.RolloutCompleted)

			// The image is what a Rollout of somebody's wrote last: Helm 4 asks, Helm 3 does not.
			w.rollout("by-hand", "web", "web:6")
			w.becomes("by-hand", v1alpha1.RolloutCompleted)
			force := ""
			if name == "ro-helm4" {
				force = " --force-conflicts"
				if under := h.fails("upgrade web CHART --set image=web:7 --wait --timeout 60s", `conflict with "muster-rollout"`, `[name="c"].image`); under != "by-hand" || w.image("web") != "web:6" {
					t.Errorf("refused, and the object has %s by %s", w.image("web"), under)
				}
			}
			w.becomes(h.does("upgrade web CHART --set image=web:7 --wait --timeout 60s"+force), v1alpha1.RolloutCompleted)
		})
	}
}
