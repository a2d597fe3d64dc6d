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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/internal/fleet"
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
