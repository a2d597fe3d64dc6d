package status

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/wire"
)

// swollen is a pod with so many containers of two bytes on the wire.
func swollen(t testing.TB, name string, containers int) *wire.Mirrored {
	t.Helper()
	m := mirrorOf(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}})
	spec := bytes.Repeat([]byte{2<<3 | 2, 0}, containers)
	m.Object = append(m.Object, 2<<3|2, byte(len(spec)&0x7f|0x80), byte(len(spec)>>7&0x7f|0x80), byte(len(spec)>>14))
	m.Object = append(m.Object, spec...)
	return m
}

// An object that is small on the wire and large in memory is not decoded at all.
func TestObjectsThatSwell(t *testing.T) {
	s := New(Options{})
	said := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true}
	for i := range 10 {
		said.Mirrored = append(said.Mirrored, swollen(t, fmt.Sprint("p", i), 65_000))
	}
	said.Mirrored = append(said.Mirrored, swollen(t, "small", 100))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if !s.Apply(demo("paris"), said) {
		t.Fatal("not taken")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d MB were allocated for %d KB on the wire", n>>20, 10*130)
	}
	if n, p := s.Stats().Pods, s.Problem(demo("paris")); n != 1 || p != "10 dropped: larger than 1048576 bytes when it is decoded" {
		t.Errorf("%d pods; %q", n, p)
	}
}

// fill makes an object in which every field is there, and every list has two members.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.Unix(1, 0)
		return
	case *metav1.MicroTime:
		*x = metav1.NewMicroTime(metav1.Unix(1, 0).Time)
		return
	case *quantity.Quantity:
		*x = quantity.MustParse("1Gi")
		return
	case *intstr.IntOrString:
		*x = intstr.FromString("some-port")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("some-text")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(v.Type())
	}
}

// taken is what a value takes beyond its own size.
func taken(v reflect.Value) (n int) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		return 0 // all share a place
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			n += taken(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			n = int(v.Type().Elem().Size()) + taken(v.Elem())
		}
	case reflect.Slice:
		n = v.Len() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += taken(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			n += mapEntry + int(v.Type().Key().Size()+v.Type().Elem().Size()) + taken(k) + taken(v.MapIndex(k))
		}
	case reflect.String:
		n = v.Len()
	}
	return n
}

// What an object takes is known from the wire, whatever is in it.
func TestWeigh(t *testing.T) {
	for k := range kinds {
		full := newObject(k)
		fill(reflect.ValueOf(full).Elem())
		all := []object{full}
		if k == pods {
			all = append(all, fullPod(shop, 1, 1, "paris"))
		}
		for _, o := range all {
			b, err := o.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			decoded := newObject(k)
			if err := decoded.Unmarshal(b); err != nil {
				t.Fatal(err)
			}
			v := reflect.ValueOf(decoded).Elem()
			got, want := weigh(k, b), int(v.Type().Size())+taken(v)
			t.Logf("%s: %d bytes on the wire, %d decoded, weighed %d", kindNames[k], len(b), want, got)
			if got < want*19/20 || got > want*21/20 {
				t.Errorf("%s: weighed %d, takes %d", kindNames[k], got, want)
			}
		}
	}
}

// What lists decode at once is bounded, for one, for a tenant and in all: pages end earlier,
// what is asked for whole is refused, and so is who holds its share.
func TestListsAreBounded(t *testing.T) {
	const n = 60
	s := New(Options{})
	tenant := func(name string) *wire.KubernetesStatus {
		m := &wire.KubernetesStatus{Epoch: "e", Seq: 1, Snapshot: true}
		for i := range n {
			o := swollen(t, fmt.Sprintf("p-%02d", i), 500)
			o.Namespace = name + "-shop"
			m.Mirrored = append(m.Mirrored, o)
		}
		return m
	}
	for _, name := range []string{"demo", "other"} {
		if id := (fleet.SiteID{Tenant: name, Name: "paris"}); !s.Apply(id, tenant(name)) || s.Problem(id) != "" {
			t.Fatal(s.Problem(id))
		}
	}
	each := weigh(pods, tenant("demo").Mirrored[0].Object)
	options := HandlerOptions{ListBytes: 64 * each}
	client := kubernetes.NewForConfigOrDie(serveWith(t, s, options)).CoreV1().Pods(shop)
	if _, err := client.List(t.Context(), metav1.ListOptions{}); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "limit=500") {
		t.Errorf("all at once: %v", err)
	}
	got, pages := map[string]bool{}, 0
	for o := (metav1.ListOptions{Limit: 500}); ; {
		l, err := client.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		if len(l.Items) > 2 {
			t.Errorf("%d at once", len(l.Items))
		}
		for _, p := range l.Items {
			got[p.Name] = true
		}
		if o.Continue = l.Continue; o.Continue == "" {
			break
		}
	}
	if len(got) != n || pages != n/2 {
		t.Errorf("%d pods in %d pages", len(got), pages)
	}

	// Answers that nobody reads hold what they hold.
	options.Scope = func(ctx context.Context) (Scope, bool) {
		name, _ := ctx.Value(tenantKey{}).(string)
		return Scope{Namespace: name + "-shop", Tenant: name}, true
	}
	r := s.Handler(options).(*server).resources[pods]
	list := func(tenant string) (end func(), err error) {
		ctx, end := r.server.leased(context.WithValue(t.Context(), tenantKey{}, tenant))
		_, err = r.List(ctx, &metainternalversion.ListOptions{Limit: 2})
		return end, err
	}
	var ends []func()
	for {
		end, err := list("demo")
		if err != nil {
			if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "tenant demo") {
				t.Error(err)
			}
			break
		}
		if ends = append(ends, end); len(ends) > n {
			t.Fatal("no end of it")
		}
	}
	if len(ends) != 16 {
		t.Errorf("%d pages of two of a tenant at once, of room for 64 pods", len(ends))
	}
	end, err := list("other")
	if err != nil {
		t.Errorf("a neighbour: %v", err)
	}
	for _, end := range append(ends, end) {
		end()
	}
	if end, err = list("demo"); err != nil || r.server.lists.Held("other") != 0 {
		t.Errorf("when they are read: %v; the neighbour holds %d", err, r.server.lists.Held("other"))
	}
	end()
}

type tenantKey struct{}

// pad is a pod of a tenant that takes so many bytes.
func pad(tenant, name string, n, bytes int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant + "-shop", Name: name, Annotations: map[string]string{"n": fmt.Sprint(n), "pad": strings.Repeat("x", bytes)}}}
}

// However much a tenant's sites say, a neighbour's watches go on from where they were, sleep
// where nothing of theirs changed, and nobody keeps more of the past than there is room for.
func TestChangesOfATenantAreItsOwn(t *testing.T) {
	const room = 1 << 20
	s := New(Options{Ring: 50, ChangeBytes: room})
	quiet, noisy := fleet.SiteID{Tenant: "quiet", Name: "paris"}, fleet.SiteID{Tenant: "noisy", Name: "paris"}
	say(t, s, quiet, true, nil, pad("quiet", "a", 0, 1000), pad("quiet", "b", 0, 1000))
	began := s.version
	say(t, s, quiet, false, nil, pad("quiet", "a", 1, 1000))
	r := s.Handler(HandlerOptions{Scope: func(context.Context) (Scope, bool) { return Scope{Namespace: "quiet-shop", Tenant: "quiet"}, true }}).(*server).resources[pods]
	asleep, err := r.Watch(t.Context(), &metainternalversion.ListOptions{ResourceVersion: fmt.Sprint(s.version)})
	if err != nil {
		t.Fatal(err)
	}
	defer asleep.Stop()
	wake := r.table.rings["quiet"].wake
	say(t, s, noisy, true, nil)
	for i := range 200 {
		say(t, s, noisy, false, nil, pad("noisy", "a", i, 100_000))
	}
	if s.changeBytes > room || s.changeBytes < room/2 {
		t.Errorf("%d bytes of changes are kept", s.changeBytes)
	}
	for i := range 200 {
		say(t, s, noisy, false, nil, pad("noisy", "b", i, 10))
	}
	if n := len(r.table.rings["noisy"].changes); n != 50 {
		t.Errorf("%d changes of one tenant are kept", n)
	}
	select {
	case <-wake:
		t.Error("the neighbour's watches were woken")
	default:
	}
	w, err := r.Watch(t.Context(), &metainternalversion.ListOptions{ResourceVersion: fmt.Sprint(began)})
	if err != nil {
		t.Fatalf("the neighbour's watch does not go on: %v", err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Modified {
		t.Errorf("%+v", e)
	}
	if all, version, err := r.table.at(r.filter(t.Context(), nil), "", began); err != nil || version != began || len(all) != 2 || !bytes.Contains(all[0].bytes, []byte("\x01n\x12\x010")) {
		t.Errorf("a list from then: %d, %v", len(all), err)
	}
	say(t, s, quiet, false, nil, pad("quiet", "a", 2, 1000))
	if e := <-asleep.ResultChan(); e.Type != watch.Modified {
		t.Errorf("%+v", e)
	}
}

// A watch whose client doesn't read holds little of what there was, and a change of it has its
// encodings no longer than others may ask for them.
func TestWatchesThatNobodyReads(t *testing.T) {
	s := New(Options{})
	id := demo("paris")
	say(t, s, id, true, nil)
	r := s.Handler(HandlerOptions{Scope: func(context.Context) (Scope, bool) { return Scope{Namespace: shop, Tenant: "demo"}, true }}).(*server).resources[pods]
	const n, size = 60, 50_000
	var old []weak.Pointer[item]
	all := func(gen int) {
		for i := range n {
			say(t, s, id, false, nil, pad("demo", fmt.Sprint("p", i), gen, size))
			old = append(old, weak.Make(r.table.get(shop, fmt.Sprint("p", i, "-paris"))))
		}
	}
	held := func() (held int) {
		runtime.GC()
		runtime.GC()
		for _, p := range old {
			if p.Value() != nil {
				held += size
			}
		}
		return held
	}
	stuck := func(version string) {
		w, err := r.Watch(t.Context(), &metainternalversion.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		testkit.EventuallyTrue(t, "it has something to send", func() bool { return len(w.ResultChan()) == 1 })
	}
	all(0)
	stuck("")
	at := s.version
	all(1)
	stuck(fmt.Sprint(at))
	rg := r.table.rings["demo"]
	if rg.encodedBytes > encodedBytes || rg.changes[0].shared != nil || rg.changes[len(rg.changes)-1].shared == nil {
		t.Errorf("changes of %d bytes keep their encodings", rg.encodedBytes)
	}
	s.o.ChangeBytes = 1 // nothing but watches holds what was
	all(2)
	if got, most := held()-n*size, 4*watchBytes; got > most {
		t.Errorf("two watches hold %d bytes of the past, of %d", got, 2*n*size)
	}
	runtime.KeepAlive(s)
}

// What a tenant's sites say takes as much of the store's room as it leaves free; the rest is
// left out and said, and what goes makes room.
func TestRoomOfATenant(t *testing.T) {
	const room = 1_000_000
	s := New(Options{Bytes: room})
	held := func(tenant string) (n int) {
		for id, st := range s.sites {
			if id.Tenant == tenant {
				n += st.bytes
				sum := 0
				for _, it := range st.items {
					sum += it.bytesKept()
				}
				for _, w := range st.states {
					sum += stateBytes(w)
				}
				if sum != st.bytes {
					t.Errorf("%s: %d bytes are counted, and there are %d", id, st.bytes, sum)
				}
			}
		}
		if s.room.Held(tenant) != n {
			t.Errorf("%s: %d bytes are held of the room, and there are %d", tenant, s.room.Held(tenant), n)
		}
		return n
	}
	fill := func(id fleet.SiteID, gen int) {
		for i := range 50 {
			say(t, s, id, false, nil, pad(id.Tenant, fmt.Sprint("p", i), gen, 10_000+gen))
		}
		epoch, seq := s.Version(id)
		m := &wire.KubernetesStatus{Epoch: epoch, Seq: seq + 1, After: seq}
		for i := range 50 {
			m.Workloads = append(m.Workloads, &wire.WorkloadStatus{Name: fmt.Sprintf("Deployment.apps/%s-shop/d%d", id.Tenant, i), State: "Ready", Status: bytes.Repeat([]byte("x"), 5000)})
		}
		if !s.Apply(id, m) {
			t.Fatal("not taken")
		}
	}
	a, b, neighbour := fleet.SiteID{Tenant: "greedy", Name: "a"}, fleet.SiteID{Tenant: "greedy", Name: "b"}, fleet.SiteID{Tenant: "next", Name: "a"}
	for gen := range 3 {
		fill(a, gen)
		fill(b, gen)
	}
	if n := held("greedy"); n > room/2+11_000 || n < room*2/5 {
		t.Errorf("the greedy one's sites have %d bytes", n)
	}
	if p := s.Problem(b); !strings.Contains(p, "control has no more room for what this tenant's sites say") {
		t.Errorf("%q", p)
	}
	say(t, s, neighbour, true, nil, pad("next", "p", 0, 10_000))
	if p := s.Problem(neighbour); p != "" || held("next") < 10_000 {
		t.Errorf("the neighbour: %q", p)
	}
	s.Online(a, true)
	say(t, s, a, true, nil, pad("greedy", "p1", 0, 10))
	if held("greedy"); s.Problem(a) != "" {
		t.Errorf("with little to say: %q", s.Problem(a))
	}
	s.Gone(a)
	s.Gone(b)
	if n := held("greedy"); n != 0 {
		t.Errorf("%d bytes of sites that are gone", n)
	}
}
