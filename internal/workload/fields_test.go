package workload_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"muster.dev/muster/internal/workload"
)

func object(t testing.TB, s string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDiffering(t *testing.T) {
	for _, c := range []struct{ kind, one, other, want string }{
		{"Deployment", `{"a":1,"b":{"c":[1,2]}}`, `{"a":1,"b":{"c":[1,2]}}`, ""},
		{"Deployment", `{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`, "spec.replicas"},
		{"Deployment", `{"spec":{"replicas":1}}`, `{}`, "spec"},
		{"Deployment", `{}`, `{"spec":{"replicas":1}}`, "spec"},
		{"Deployment", `{"spec":{"c":[{"name":"a","i":1},{"name":"b"}]}}`, `{"spec":{"c":[{"name":"c"},{"name":"a","i":2}]}}`, "spec.c[a].i spec.c[b] spec.c[c]"},
		{"Deployment", `{"spec":{"c":[{"x":1}]}}`, `{"spec":{"c":[{"x":1,"y":2}]}}`, "spec.c"},
		{"ConfigMap", `{"data":{"a.conf":"x"},"metadata":{"annotations":{"m/x":"1"}}}`, `{"data":{"a.conf":"y"},"metadata":{"annotations":{"m/x":"2"}}}`, "data[a.conf] metadata.annotations[m/x]"},
		{"Secret", `{"data":{"a.conf":"x","b":"1"},"metadata":{"labels":{"l":"1"}}}`, `{"data":{"a.conf":"y","c":"1"},"metadata":{"labels":{"l":"2"}}}`, "data metadata.labels"},
		{"Secret", `{"data":{"k[x":"x"},"metadata":{"annotations":{"m/x":"1"}}}`, `{"data":{"k[x":"y"},"metadata":{"annotations":{"m/x":"2"}}}`, "data metadata.annotations"},
		{"Deployment", `{"a":null,"b":{},"c":[]}`, `{}`, ""},
		{"Deployment", `{"a":"x"}`, `{"a":{"b":1}}`, "a"},
	} {
		one, other := object(t, c.one), object(t, c.other)
		for _, got := range [][]string{workload.Differing(c.kind, one, other), workload.Differing(c.kind, other, one)} {
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s %s and %s: %s, want %s", c.kind, c.one, c.other, s, c.want)
			}
		}
	}
	many := map[string]any{strings.Repeat("é", workload.MaxField): 1}
	for i := range 3 * workload.MaxFields {
		many[fmt.Sprintf("f%02d", i)] = i
	}
	got := workload.Differing("ConfigMap", many, map[string]any{})
	if len(got) != workload.MaxFields || got[0] != "f00" || got[workload.MaxFields-1] != fmt.Sprintf("and %d more", 2*workload.MaxFields+2) {
		t.Errorf("many: %d, %s", len(got), got)
	}
	if got := workload.Differing("ConfigMap", map[string]any{strings.Repeat("é", workload.MaxField): 1}, nil); len(got) != 1 || len(got[0]) > workload.MaxField || strings.ContainsRune(got[0], 0xfffd) {
		t.Errorf("a long one: %q", got)
	}
}

func TestChangedCountsOnlyWhatIsOwnedNoMore(t *testing.T) {
	wanted := `{"metadata":{"labels":{"app":"web"}},"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"web","image":"a","args":["x"],"ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1000m"}}}]}}}}`
	owned := `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:name":{},"f:image":{},"f:args":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}}}`
	live := `{"metadata":{"labels":{"app":"web","theirs":"1"},"uid":"u"},"spec":{"replicas":2,"paused":false,"template":{"spec":{"restartPolicy":"Always","containers":[{"name":"side"},{"name":"web","image":"a","args":["x"],"ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"limits":{"cpu":"1"}}}]}}},"status":{"x":1}}`
	for _, c := range []struct{ owned, live, want string }{
		{"", "", ""},
		{`"f:replicas":{},`, `"replicas":2/"replicas":5`, "spec.replicas"},
		{`"f:replicas":{},`, `"replicas":2,/`, "spec.replicas"},
		{`"f:image":{},`, `"image":"a"/"image":"evil"`, "spec.template.spec.containers[web].image"},
		{`"f:args":{},`, `["x"]/["y"]`, "spec.template.spec.containers[web].args"},
		{`,"f:resources":{"f:limits":{"f:cpu":{}}}`, `"cpu":"1"/"cpu":"2"`, "spec.template.spec.containers[web].resources.limits.cpu"},
		{`"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},`, `"containerPort":80/"containerPort":81`, "spec.template.spec.containers[web].ports"},
		{`"f:metadata":{"f:labels":{"f:app":{}}},`, `"app":"web",/`, "metadata.labels.app"},
		// Owned by somebody else, too late: it is as it should be.
		{`"f:replicas":{},`, "", ""},
		// What is in it as somebody else wants it, and this applier did not say, is theirs.
		{"", `"paused":false/"paused":true`, ""},
	} {
		from, to, _ := strings.Cut(c.live, "/")
		l, o := live, strings.Replace(owned, c.owned, "", 1)
		if c.live != "" {
			if l = strings.Replace(live, from, to, 1); l == live {
				t.Fatalf("%s is not in it", from)
			}
		}
		if c.owned != "" && o == owned {
			t.Fatalf("%s is not in it", c.owned)
		}
		if got := strings.Join(workload.Changed("Deployment", object(t, wanted), object(t, l), []byte(o)), " "); got != c.want {
			t.Errorf("without %s, with %s: %q, want %q", c.owned, to, got, c.want)
		}
	}
	if got := workload.Changed("Secret", object(t, `{"data":{"password":"x"}}`), object(t, `{"data":{"password":"y"}}`), []byte("{}")); strings.Join(got, " ") != "data" {
		t.Errorf("of a Secret: %s", got)
	}
}

func FuzzChanged(f *testing.F) {
	f.Add(`{"a":[{"name":"x","b":1}]}`, `{"a":[{"name":"x","b":2}]}`, `{"f:a":{"k:{\"name\":\"x\"}":{"f:b":{}}}}`)
	f.Add(`{"a":[1,"v"]}`, `{"a":["v"]}`, `{"f:a":{"v:1":{},"v:\"v\"":{}}}`)
	f.Fuzz(func(t *testing.T, a, b, owned string) {
		var one, other map[string]any
		if json.Unmarshal([]byte(a), &one) != nil || json.Unmarshal([]byte(b), &other) != nil {
			return
		}
		for _, fields := range [][]string{workload.Changed("Secret", one, other, []byte(owned)), workload.Differing("ConfigMap", one, other)} {
			if len(fields) > workload.MaxFields {
				t.Errorf("%d fields", len(fields))
			}
			for _, field := range fields {
				if len(field) > workload.MaxField {
					t.Errorf("%d bytes: %q", len(field), field)
				}
			}
		}
		if got := workload.Differing("X", one, one); len(got) > 0 {
			t.Errorf("%s differs from itself: %s", a, got)
		}
	})
}
