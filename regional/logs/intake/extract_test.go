package intake

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			want:  Record{Node: "w", Namespace: "n", Pod: "p", Unit: "s", Severity: "error", Message: "x"}},
		{name: "severity number alone", rec: `{"log":"x"}`, meta: `{"otlp":{"severity_number":13}}`, want: Record{Severity: "warning", Message: "x"}},
		{name: "empty", rec: `{}`, want: Record{}},
		{name: "long", rec: `{"log":"` + strings.Repeat("é", 600) + `"}`, want: Record{Message: strings.Repeat("é", 500) + "… [truncated]"}},
	} {
		if d := cmp.Diff(c.want, extract(c.tag, c.rec, c.meta, c.group)); d != "" {
			t.Errorf("%s: want -, got +:\n%s", c.name, d)
		}
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
