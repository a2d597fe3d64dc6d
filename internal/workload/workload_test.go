package workload

import (
	"slices"
	"strings"
	"testing"
)

func TestItemNames(t *testing.T) {
	for _, c := range [][4]string{{"apps", "Deployment", "acme-shop", "web"}, {"", "ConfigMap", "acme-shop", "a.b"}, {"", "Namespace", "", "acme-shop"}, {"gateway.networking.k8s.io", "HTTPRoute", "n", "r"}} {
		item := ItemName(c[0], c[1], c[2], c[3])
		g, k, ns, n, err := ParseItemName(item)
		if err != nil || [4]string{g, k, ns, n} != c {
			t.Errorf("%s: %s %s %s %s, %v", item, g, k, ns, n, err)
		}
	}
}

func FuzzParseItemName(f *testing.F) {
	f.Add("Deployment.apps/acme-shop/web")
	f.Add("Namespace/-/acme-shop")
	f.Add("//")
	f.Fuzz(func(t *testing.T, item string) {
		g, k, ns, n, err := ParseItemName(item)
		if err != nil {
			return
		}
		if again := ItemName(g, k, ns, n); again != item && !strings.HasSuffix(strings.SplitN(item, "/", 2)[0], ".") {
			t.Errorf("%q is %q again", item, again)
		}
	})
}

func TestFlavors(t *testing.T) {
	if f, err := ParseFlavor(""); err != nil || f.Name != "tiny" {
		t.Errorf("default: %+v, %v", f, err)
	}
	if _, err := ParseFlavor("huge"); err == nil || !strings.Contains(err.Error(), "tiny, medium, large") {
		t.Errorf("an unknown one: %v", err)
	}
	if got := List(" a/b, ,c "); !slices.Equal(got, []string{"a/b", "c"}) {
		t.Errorf("%v", got)
	}
}
