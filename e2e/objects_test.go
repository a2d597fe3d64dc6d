package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

var objects = flag.Int("objects", 1000, "ConfigMaps of TestManyObjects, beside a hundredth as many Deployments")

// many are the objects of a site that has a lot of them.
type many struct {
	*clusters
	maps, apps   int
	centre, site kubernetes.Interface
	line         *meteredLine
	within       time.Duration // for all of them; a minute and more at any rate
}

// TestManyObjects: a site has as many objects as -objects says, by a real control, regional and
// agent, on a real cluster. All of them are there and are told to be, though the agent starts
// anew amid; of one that changes that one alone is touched, fetched and told of; and all go.
// With -v it prints what that costs.
func TestManyObjects(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("set MUSTER_E2E=1, or run make test-e2e: it starts a fleet and a cluster")
	}
	t.Parallel()
	f := startClusters(t)
	line := meter(t, f.gateway)
	f.gateway = line.addr
	f.join("paris")
	f.shop.QPS, f.sites["paris"].Config.QPS = -1, -1
	m := &many{clusters: f, line: line, maps: *objects, apps: max(1, *objects/100), within: 2*time.Minute + time.Duration(*objects)*60*time.Millisecond,
		centre: kubernetes.NewForConfigOrDie(f.shop), site: kubernetes.NewForConfigOrDie(f.sites["paris"].Config)}
	m.appear()
	m.changeOne()
	m.disappear()
}

// appear makes all of them, and waits until the site has them and the centre knows.
func (m *many) appear() {
	m.figure("before", time.Now())
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(16)
	for i := range m.maps {
		g.Go(func() error {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i), Labels: map[string]string{"many": "yes"}}, Data: map[string]string{"v": fmt.Sprint(i)}}
			_, err := m.centre.CoreV1().ConfigMaps(shopNamespace).Create(m.t.Context(), o, metav1.CreateOptions{})
			return err
		})
	}
	one := int32(1)
	for i := range m.apps {
		g.Go(func() error {
			d := web("nginx:1.27")
			d.Name, d.Labels, d.Spec.Replicas = fmt.Sprintf("many-%d", i), map[string]string{"many": "yes"}, &one
			d.Spec.Selector.MatchLabels["app"] = d.Name // the labels of its pods, too
			_, err := m.centre.AppsV1().Deployments(shopNamespace).Create(m.t.Context(), d, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		m.t.Fatal(err)
	}
	m.figure("all are made at the centre", began)
	testkit.EventuallyWithin(m.t, "the site has a quarter", m.within, func() error {
		if has := len(m.onSite()); has < m.maps/4 {
			return fmt.Errorf("%d", has)
		}
		return nil
	})
	m.stopEdge["paris"]()
	m.startEdge("paris")
	testkit.EventuallyWithin(m.t, "the site has all", m.within, func() error {
		if has := len(m.onSite()); has != m.maps {
			return fmt.Errorf("%d of %d", has, m.maps)
		}
		return nil
	})
	m.figure("the site has all, the agent having been started anew amid", began)
	testkit.EventuallyWithin(m.t, "all are told to be ready", m.within, func() error { return m.told(m.maps + m.apps) })
	m.figure("all are told to be ready", began)
}

// changeOne changes one of them, a few times.
func (m *many) changeOne() {
	before := m.onSite()
	least := struct{ up, down int64 }{1 << 40, 1 << 40}
	for i := range 5 { // what the site measures goes over the same line, in some of them
		began, up, down := time.Now(), m.line.up.Load(), m.line.down.Load()
		value := fmt.Sprintf("changed-%d", i)
		if _, err := m.centre.CoreV1().ConfigMaps(shopNamespace).Patch(m.t.Context(), "many-7", types.MergePatchType, fmt.Appendf(nil, `{"data":{"v":%q}}`, value), metav1.PatchOptions{}); err != nil {
			m.t.Fatal(err)
		}
		testkit.Eventually(m.t, "the site has the change, and says so", func() error {
			got, err := m.site.CoreV1().ConfigMaps(shopNamespace).Get(m.t.Context(), "many-7", metav1.GetOptions{})
			if err != nil || got.Data["v"] != value {
				return fmt.Errorf("%v, %w", got.Data, err)
			}
			var w wire.Workload
			if err := m.ask("/ConfigMap/many-7", &w); err != nil {
				return err
			}
			if len(w.Sites) != 1 || w.Sites[0].State != string(workload.Ready) || w.Sites[0].Digest != w.Sites[0].Wanted || w.Sites[0].Digest != got.Annotations[workload.Digest] {
				return fmt.Errorf("%+v", w.Sites)
			}
			return nil
		})
		least.up, least.down = min(least.up, m.line.up.Load()-up), min(least.down, m.line.down.Load()-down)
		m.figure("one is changed, and told to be ready", began)
	}
	after := m.onSite()
	for name, version := range before {
		if changed := after[name] != version; changed != (name == "many-7") {
			m.t.Errorf("%s: changed on the site: %v, by a change of many-7 alone", name, changed)
		}
	}
	// The list of a thousand has 123 kB, and their states as much.
	if least.up > 20_000 || least.down > 20_000 {
		m.t.Errorf("a change of one takes %d bytes to the site and %d from it", least.down, least.up)
	}
	m.t.Logf("figure: one of %d is changed: at least %d bytes to the site, %d from it", m.maps, least.down, least.up)
}

// disappear deletes all of them.
func (m *many) disappear() {
	began := time.Now()
	all := metav1.ListOptions{LabelSelector: "many=yes"}
	if err := m.centre.AppsV1().Deployments(shopNamespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, all); err != nil {
		m.t.Fatal(err)
	}
	if err := m.centre.CoreV1().ConfigMaps(shopNamespace).DeleteCollection(m.t.Context(), metav1.DeleteOptions{}, all); err != nil {
		m.t.Fatal(err)
	}
	testkit.EventuallyWithin(m.t, "the site has none of them", m.within, func() error {
		apps, err := m.site.AppsV1().Deployments(shopNamespace).List(m.t.Context(), all)
		if has := len(m.onSite()); err != nil || has+len(apps.Items) > 0 {
			return fmt.Errorf("%d and %d, %w", has, len(apps.Items), err)
		}
		return nil
	})
	testkit.EventuallyWithin(m.t, "nothing is told of them", m.within, func() error { return m.told(0) })
	m.figure("all are gone", began)
}

// onSite are the versions of those that the site's cluster has, by name.
func (m *many) onSite() map[string]string {
	m.t.Helper()
	list, err := m.site.CoreV1().ConfigMaps(shopNamespace).List(m.t.Context(), metav1.ListOptions{LabelSelector: "many=yes,muster.dev/owned=true"})
	if err != nil {
		m.t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		out[o.Name] = o.ResourceVersion
	}
	return out
}

// told is nil when the centre tells of so many, and of each that the site has it ready.
func (m *many) told(want int) error {
	var list wire.WorkloadList
	if err := m.ask("", &list); err != nil {
		return err
	}
	told, ready, other := 0, 0, ""
	for _, w := range list.Items {
		if !strings.HasPrefix(w.Name, "many-") {
			continue
		}
		told++
		if w.Counts.Sites == 1 && w.Counts.Ready == 1 {
			ready++
		} else {
			other = fmt.Sprintf("%s %s: %+v %v", w.Kind, w.Name, w.Counts, w.Reasons)
		}
	}
	if told != want || ready != want {
		return fmt.Errorf("%d are told of and %d are ready, want %d: %s", told, ready, want, other)
	}
	return nil
}

// ask asks below /muster/workloads.
func (m *many) ask(path string, out any) error {
	b, err := m.centre.CoreV1().RESTClient().Get().AbsPath("/muster/workloads" + path).DoRaw(m.t.Context())
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// figure prints what there is to measure.
func (m *many) figure(what string, since time.Time) {
	text := fmt.Sprintf("%.1f s; %d kB to the site, %d kB from it", time.Since(since).Seconds(), m.line.down.Load()/1000, m.line.up.Load()/1000)
	for _, p := range []string{"muster-edge of paris", "regional", "control"} {
		text += fmt.Sprintf("; %s %.0f MiB, %.0f at most", p, rss(m.pids[p]), memoryOf(m.pids[p], "VmHWM"))
	}
	m.t.Logf("figure: %s (%d and %d objects): %s", what, m.maps, m.apps, text)
}

// meteredLine counts what passes to and from a gateway.
type meteredLine struct {
	addr     string
	up, down atomic.Int64
}

// meter listens in front of a gateway.
func meter(t *testing.T, gateway string) *meteredLine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
	})
	l := &meteredLine{addr: ln.Addr().String()}
	pass := func(to, from net.Conn, n *atomic.Int64) {
		_, _ = io.Copy(to, io.TeeReader(from, countTo{n}))
		_ = to.Close()
	}
	go func() {
		for {
			site, err := ln.Accept()
			if err != nil {
				return
			}
			centre, err := (&net.Dialer{}).DialContext(ctx, "tcp", gateway)
			if err != nil {
				_ = site.Close()
				continue
			}
			context.AfterFunc(ctx, func() {
				_ = site.Close()
				_ = centre.Close()
			})
			go pass(centre, site, &l.up)
			go pass(site, centre, &l.down)
		}
	}()
	return l
}

type countTo struct{ n *atomic.Int64 }

func (c countTo) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
