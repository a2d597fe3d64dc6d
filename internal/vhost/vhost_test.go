package vhost

import (
	"reflect"
	"strings"
	"testing"
)

func host() *Host {
	return &Host{Tenant: "acme", Namespace: "shop", Name: "db", Host: "db-global", Port: 5432, Service: "db", ServicePort: 15432,
		Providers: []string{"berlin", "paris"}, Consumers: []string{"lyon"}}
}

func TestRoundTrip(t *testing.T) {
	h := host()
	got, err := Decode(h.Encode())
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Fatalf("%+v, %v", got, err)
	}
	if !got.Provides("paris") || got.Provides("lyon") || !got.Consumes("lyon") || got.Consumes("paris") {
		t.Error("who serves it and who reaches it")
	}
	if got.Key() != "shop/db" || got.SiteNamespace() != "acme-shop" {
		t.Error(got.Key(), got.SiteNamespace())
	}
}

func TestBad(t *testing.T) {
	for field, change := range map[string]func(*Host){
		"tenant":                      func(h *Host) { h.Tenant = "../x" },
		"namespace":                   func(h *Host) { h.Namespace = "a/b" },
		"name":                        func(h *Host) { h.Name = "" },
		"host":                        func(h *Host) { h.Host = "a.b" },
		"service":                     func(h *Host) { h.Service = "9db" },
		"port":                        func(h *Host) { h.Port = 0 },
		"servicePort":                 func(h *Host) { h.ServicePort = 70000 },
		"providers":                   func(h *Host) { h.Providers = []string{"Paris"} },
		"consumers":                   func(h *Host) { h.Consumers = []string{"b", "a"} },
		"routes":                      func(h *Host) { h.Routes = []Route{{Path: "/", Service: "x", Port: 1}} },
		"routes: path \"api\"":        func(h *Host) { h.HTTP, h.Routes = true, []Route{{Path: "api", Service: "x", Port: 1}} },
		"routes: service \"X\"":       func(h *Host) { h.HTTP, h.Routes = true, []Route{{Path: "/", Service: "X", Port: 1}} },
		"routes: port 0":              func(h *Host) { h.HTTP, h.Routes = true, []Route{{Path: "/", Service: "x"}} },
		"routes: 33, the limit is 32": func(h *Host) { h.HTTP, h.Routes = true, make([]Route, 33) },
	} {
		h := host()
		change(h)
		if _, err := Decode(h.Encode()); err == nil || !strings.Contains(err.Error()+":", field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := Decode(append(host().Encode(), '{')); err == nil {
		t.Error("something after the object was taken")
	}
	for key, want := range map[string]bool{"shop/db": true, "shop": false, "shop/": false, "a/b/c": false, "../x": false, "Shop/db": false} {
		if ValidKey(key) != want {
			t.Errorf("%q: %t", key, !want)
		}
	}
}

func TestRoutes(t *testing.T) {
	h := host()
	h.HTTP, h.Routes = true, []Route{{Path: "/", Service: "rest", Port: 1}, {Path: "/a", Service: "a", Port: 1}, {Host: "x.example.com", Path: "/", Service: "x", Port: 1}, {Path: "/a/b/", Service: "ab", Port: 1}, {Host: "x.example.com", Path: "/a", Service: "xa", Port: 1}}
	SortRoutes(h.Routes)
	if got, err := Decode(h.Encode()); err != nil || !got.Equal(h) || got.Equal(host()) {
		t.Errorf("%+v, %v", got, err)
	}
	for url, want := range map[[2]string]string{
		{"db", "/"}: "rest", {"db", "/ab"}: "rest", {"db", "/a"}: "a", {"db", "/a/"}: "a", {"db", "/a/bc"}: "a", {"db", "/a/b"}: "ab", {"db", "/a/b/c"}: "ab",
		{"X.example.com", "/b"}: "x", {"x.example.com", "/a/b"}: "xa", {"y.example.com", "/a/b"}: "ab", {"db", "*"}: "",
	} {
		got := ""
		for _, r := range h.Routes {
			if r.Matches(url[0], url[1]) {
				got = r.Service
				break
			}
		}
		if got != want {
			t.Errorf("%v: %q, want %q", url, got, want)
		}
	}
	if got := strings.Join(h.Services(), " "); got != "db xa x ab a rest" {
		t.Errorf("its Services: %s", got)
	}
	if to := h.To("a", 7); to.Service != "a" || to.ServicePort != 7 || h.Service != "db" {
		t.Errorf("%+v, %+v", to, h)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(host().Encode())
	f.Add([]byte(`{"tenant":"acme"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Decode(b)
		if err != nil {
			return
		}
		if again, err := Decode(h.Encode()); err != nil || !reflect.DeepEqual(again, h) {
			t.Errorf("%+v, then %+v, %v", h, again, err)
		}
		if !ValidKey(h.Key()) || len(h.Key()) > MaxKey {
			t.Errorf("key %q", h.Key())
		}
	})
}
