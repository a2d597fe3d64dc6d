package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/regional/logs/store"
)

func extract(tag, rec, meta, group string) Record {
	j := func(s string) value { return value{raw: []byte(s), json: true} }
	r := reader{maxLine: 1000}
	var l line
	r.read(&l, []byte(tag), j(rec), j(meta), j(group), true)
	out := Record{Node: string(l.node), Namespace: string(l.namespace), Pod: string(l.pod), Container: string(l.container), Unit: string(l.unit),
		Stream: string(l.stream), Severity: string(l.severity), Message: string(l.message)}
	for _, kv := range l.labels {
		if out.Labels == nil {
			out.Labels = map[string]string{}
		}
		out.Labels[string(kv.key)] = string(kv.value)
	}
	return out
}

func TestExtract(t *testing.T) {
	for _, c := range []struct {
		name, tag, rec, meta, group string
		want                        Record
	}{
		{name: "kubernetes filter", rec: `{"time":"2026-01-01T00:00:00Z","stream":"stderr","logtag":"F","log":"boom\n","kubernetes":{"pod_name":"web-1","namespace_name":"shop",
			"pod_id":"1","labels":{"app":"web"},"annotations":{"x":"y"},"host":"node-3","container_name":"nginx","docker_id":"a","container_image":"nginx:1"}}`,
			want: Record{Node: "node-3", Namespace: "shop", Pod: "web-1", Container: "nginx", Stream: "stderr", Message: "boom", Labels: map[string]string{"kubernetes.labels.app": "web"}}},
		{name: "systemd", rec: `{"_SYSTEMD_UNIT":"kubelet.service","PRIORITY":"3","MESSAGE":"cannot start","_HOSTNAME":"node-1","_PID":"12","_TRANSPORT":"stdout","SYSLOG_IDENTIFIER":"kubelet"}`,
			want: Record{Node: "node-1", Unit: "kubelet.service", Severity: "error", Stream: "stdout", Message: "cannot start"}},
		{name: "systemd, stripped", rec: `{"SYSTEMD_UNIT":"kubelet.service","PRIORITY":"4","MESSAGE":"hm","HOSTNAME":"node-1"}`,
			want: Record{Node: "node-1", Unit: "kubelet.service", Severity: "warning", Message: "hm"}},
		{name: "kernel", rec: `{"SYSLOG_IDENTIFIER":"kernel","_TRANSPORT":"kernel","PRIORITY":"2","MESSAGE":"oom"}`,
			want: Record{Unit: "kernel", Stream: "kernel", Severity: "critical", Message: "oom"}},
		{name: "tag of a path", tag: "kube.var.log.containers.web-1_shop_nginx-0123abcd.log", rec: `{"log":"x"}`,
			want: Record{Namespace: "shop", Pod: "web-1", Container: "nginx", Message: "x"}},
		{name: "merged JSON log", rec: `{"log":"{\"level\":\"error\",\"msg\":\"no\",\"code\":7}","level":"error","msg":"no","code":7}`,
			want: Record{Severity: "error", Message: `{"level":"error","msg":"no","code":7}`, Labels: map[string]string{"code": "7"}}},
		{name: "JSON line, not parsed", rec: `{"log":"{\"ts\":1,\"level\":\"warn\",\"msg\":\"no\"}"}`, want: Record{Severity: "warning", Message: `{"ts":1,"level":"warn","msg":"no"}`}},
		{name: "pino", rec: `{"level":50,"msg":"no"}`, want: Record{Severity: "error", Message: "no"}},
		{name: "klog", rec: `{"log":"E0102 15:04:05.1 1 main.go:1] no"}`, want: Record{Severity: "error", Message: "E0102 15:04:05.1 1 main.go:1] no"}},
		{name: "logfmt", rec: `{"log":"ts=1 level=warn msg=no"}`, want: Record{Severity: "warning", Message: "ts=1 level=warn msg=no"}},
		{name: "no level in it", rec: `{"log":"the sublevel=error is not one","lvl":"Fatal"}`, want: Record{Severity: "critical", Message: "the sublevel=error is not one"}},
		{name: "unknown level", rec: `{"log":"x","level":"loud"}`, want: Record{Message: "x"}},
		{name: "no message", rec: `{"a":1,"b":{"c":[1,"x"]},"d":null}`, want: Record{Message: `{"a":1,"b":{"c":[1,"x"]},"d":null}`, Labels: map[string]string{"a": "1", "b.c": `[1,"x"]`}}},
		{name: "message is an object", rec: `{"message":{"a":1}}`, want: Record{Message: `{"a":1}`}},
		{name: "two messages", rec: `{"log":"raw","message":"parsed"}`, want: Record{Message: "raw", Labels: map[string]string{"message": "parsed"}}},
		{name: "OpenTelemetry", rec: `{"log":"x"}`, meta: `{"otlp":{"severity_number":17,"severity_text":"ERROR"}}`,
			group: `{"resource":{"attributes":{"k8s.pod.name":"p","k8s.namespace.name":"n","k8s.node.name":"w","service.name":"s"}}}`,
			want:  Record{Node: "w", Namespace: "n", Pod: "p", Unit: "s", Severity: "error", Message: "x", Labels: map[string]string{"resource.service.name": "s"}}},
		{name: "OpenTelemetry, all of it", rec: `{"log":"x","k":"v"}`, meta: `{"otlp":{"severity_number":9,"attributes":{"http.method":"GET","http":{"code":200}},"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"00f067aa0ba902b7","trace_flags":1}}`,
			group: `{"resource":{"attributes":{"k8s.pod.name":"p","deployment.environment":"prod"},"dropped_attributes_count":0},"scope":{"name":"shop.cart","version":"1.2","attributes":{"a":true}}}`,
			want: Record{Pod: "p", Severity: "info", Message: "x", Labels: map[string]string{"k": "v", "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7",
				"attributes.http.method": "GET", "attributes.http.code": "200", "resource.deployment.environment": "prod", "scope.name": "shop.cart", "scope.version": "1.2", "scope.attributes.a": "true"}}},
		{name: "OpenTelemetry, empty ids", rec: `{"log":"x"}`, meta: `{"otlp":{"trace_id":"00000000000000000000000000000000","span_id":"","attributes":{}}}`, group: `{"resource":{},"scope":{}}`, want: Record{Message: "x"}},
		{name: "Fluent Bit's metadata", rec: `{"log":"x","region":"mine"}`, meta: `{"cluster":"blue","region":"eu","n":{"m":1}}`,
			want: Record{Message: "x", Labels: map[string]string{"region": "mine", "metadata.cluster": "blue", "metadata.region": "eu", "metadata.n.m": "1"}}},
		{name: "severity number alone", rec: `{"log":"x"}`, meta: `{"otlp":{"severity_number":13}}`, want: Record{Severity: "warning", Message: "x"}},
		{name: "empty", rec: `{}`, want: Record{}},
		{name: "long", rec: `{"log":"` + strings.Repeat("é", 600) + `"}`, want: Record{Message: strings.Repeat("é", 500) + "… [truncated]"}},
	} {
		if d := cmp.Diff(c.want, extract(c.tag, c.rec, c.meta, c.group)); d != "" {
			t.Errorf("%s: want -, got +:\n%s", c.name, d)
		}
	}
}

// TestTraceIDs: Fluent Bit keeps them as bytes; they are found by their hex. They have
// room before all other labels.
func TestTraceIDs(t *testing.T) {
	id := []byte{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36}
	meta := mp{0x81}.str("otlp").amap(3).str("trace_id").bin(id).str("span_id").bin(id[:8]).str("attributes").amap(200)
	for i := range 200 {
		meta = meta.str(fmt.Sprint("a", i), "v")
	}
	r := reader{maxLine: 1000}
	var l line
	r.read(&l, nil, value{raw: mp{0x81}.str("log", "x")}, value{raw: meta}, value{}, false)
	got := map[string]string{}
	for _, kv := range l.labels {
		got[string(kv.key)] = string(kv.value)
	}
	if got["trace_id"] != "4bf92f3577b34da6a3ce929d0e0e4736" || got["span_id"] != "4bf92f3577b34da6" || got["attributes.a3"] != "v" || len(l.labels) != store.MaxLabels || r.unlabelled == 0 {
		t.Errorf("%d labels, %d without room: %v", len(l.labels), r.unlabelled, got)
	}
}

func TestFieldTime(t *testing.T) {
	for raw, want := range map[string]int64{
		`1710278832`: 1710278832e9, `1710278832.25`: 1710278832_250000000, `1710278832250`: 1710278832_250000000, `1710278832250001`: 1710278832_250001000,
		`1710278832250001002`: 1710278832_250001002, `"2024-03-12T21:27:12.25Z"`: 1710278832_250000000, `"2024-03-12 21:27:12.250000"`: 1710278832_250000000,
		`"2024-03-12T22:27:12+01:00"`: 1710278832e9, `"1710278832"`: 1710278832e9, `"yesterday"`: 0, `null`: 0, `-5`: 0, `{}`: 0, `1e300`: 0,
	} {
		if got, _ := fieldTime(value{raw: []byte(raw), json: true}); got != want {
			t.Errorf("%s: %d, want %d", raw, got, want)
		}
	}
}
