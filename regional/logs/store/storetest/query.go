package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/store"
)

// lines that are hard to cut into words.
var lines = []store.Record{
	{ID: "oom", Message: "Out of memory: Killed process 4711 (java)", Severity: "error", Namespace: "shop", Pod: "checkout-1", Site: "paris-07"},
	{ID: "oom2", Message: "memory is running out of space", Severity: "warning", Namespace: "shop", Pod: "checkout-2", Site: "paris-07"},
	{ID: "conn", Message: "connection refused: dial tcp 10.0.0.12:5432", Severity: "error", Namespace: "shop", Pod: "web-1", Site: "lyon-01"},
	{ID: "conn2", Message: "Connection-timeout while dialing 10.0.1.3:80", Severity: "warning", Namespace: "billing", Pod: "web-10", Site: "lyon-01"},
	{ID: "path", Message: "GET /api/v1/users?id=42&x=a_b HTTP/1.1 200", Severity: "info", Namespace: "billing", Pod: "api.v1", Site: "lyon-01", Labels: map[string]string{"app": "api", "team": "Blue Team", "status": "503", "took": "1200", "path": "/api/v1/users"}},
	{ID: "kv", Message: `level=info msg="it's done" took=1.5s user=bob@example.com`, Severity: "info", Unit: "k3s.service", Site: "tokyo", Labels: map[string]string{"app": "apiserver", "status": "5034", "took": "0.75", "path": "/api/v2/a+b"}},
	{ID: "uml", Message: "Größe überschritten: naïve CAFÉ", Severity: "notice", Unit: "sshd.service", Site: "tokyo"},
	{ID: "cjk", Message: "東京のサーバー 한국어 ошибка", Severity: "error", Unit: "sshd.service", Site: "tokyo"},
	{ID: "sym", Message: "*** --- !!! ???", Severity: "debug", Site: "tokyo"},
	{ID: "empty", Message: "", Severity: "debug", Site: "tokyo"},
	{ID: "stop", Message: "the and or not to be", Severity: "debug", Site: "tokyo"},
	{ID: "json", Message: `{"error":{"code":500,"msg":"disk-full"},"host":"a.b.c"}`, Severity: "error", Site: "rome", Stream: "stderr"},
	{ID: "star", Message: "glob a*b and c?d", Severity: "info", Site: "rome", Pod: "odd*pod", Labels: map[string]string{"status": "499", "took": "-3", "path": "/api/v3/users"}},
	{ID: "dash", Message: "code E-1042 foo.bar foo_bar foo:bar foo,bar 1,000.5", Severity: "info", Site: "rome"},
	{ID: "emoji", Message: "deploy 🚀 done 👍🏽", Severity: "info", Site: "rome", Labels: map[string]string{"status": "500x", "took": "1e9", "path": "/Web/ü\nß"}},
}

// queries, with what they find by ID, in any store.
var queries = []struct {
	text string
	want []string
}{
	{`error`, []string{"json"}},
	{`severity:error`, []string{"oom", "conn", "cjk", "json"}},
	{`severity:ERROR AND "out of memory"`, []string{"oom"}},
	{`"out of"`, []string{"oom", "oom2"}},
	{`out memory`, []string{"oom", "oom2"}},
	{`out OR refused`, []string{"oom", "oom2", "conn"}},
	{`memory NOT killed`, []string{"oom2"}},
	{`memory -killed`, []string{"oom2"}},
	{`NOT severity:error NOT severity:info NOT severity:debug`, []string{"oom2", "conn2", "uml"}},
	{`(memory AND killed) OR (connection AND NOT refused)`, []string{"oom", "conn2"}},
	{`NOT (memory OR site:tokyo OR site:rome)`, []string{"conn", "conn2", "path"}},
	{`namespace:shop AND (refused OR space)`, []string{"oom2", "conn"}},
	{`namespace:(shop OR billing) -pod:web-1`, []string{"oom", "oom2", "conn2", "path"}},
	{`namespace:SHOP`, nil},
	{`kubernetes.namespace:shop kubernetes.pod.name:checkout-1`, []string{"oom"}},
	{`orchestrator.namespace:billing`, []string{"conn2", "path"}},
	{`pod:web-*`, []string{"conn", "conn2"}},
	{`pod:web-?`, []string{"conn"}},
	{`pod:c*-?`, []string{"oom", "oom2"}},
	{`pod:odd\*pod`, []string{"star"}},
	{`pod:odd\**`, []string{"star"}},
	{`pod:"web-1"`, []string{"conn"}},
	{`pod:api.v1`, []string{"path"}},
	{`pod:*`, []string{"oom", "oom2", "conn", "conn2", "path", "star"}},
	{`_exists_:unit`, []string{"kv", "uml", "cjk"}},
	{`NOT _exists_:pod AND NOT _exists_:unit AND site:tokyo`, []string{"sym", "empty", "stop"}},
	{`_exists_:message site:tokyo severity:debug`, []string{"sym", "empty", "stop"}},
	{`unit:sshd.service OR unit:k3s*`, []string{"kv", "uml", "cjk"}},
	{`stream:stderr`, []string{"json"}},
	{`id:path`, []string{"path"}},
	{`labels.app:api`, []string{"path"}},
	{`labels.app:api*`, []string{"path", "kv"}},
	{`labels.team:"Blue Team"`, []string{"path"}},
	{`labels.team:Blue*`, []string{"path"}},
	{`labels.team:blue*`, nil},
	{`_exists_:labels.team`, []string{"path"}},
	{`labels.app:*`, []string{"path", "kv"}},
	{`labels.nosuch:x`, nil},
	{`conn*`, []string{"conn", "conn2"}},
	{`CONN*ION`, []string{"conn", "conn2"}},
	{`10.0.0.12`, []string{"conn"}},
	{`10.0.*`, []string{"conn", "conn2"}},
	{`"10.0.0.12:5432"`, []string{"conn"}},
	{`connection-timeout`, []string{"conn2"}},
	{`"connection timeout"`, []string{"conn2"}},
	{`"timeout connection"`, nil},
	{`disk-full`, []string{"json"}},
	{`a.b.c`, []string{"json"}},
	{`"/api/v1/users"`, []string{"path"}},
	{`a_b`, []string{"path"}},
	{`it's`, []string{"kv"}},
	{`bob@example.com`, []string{"kv"}},
	{`größe`, []string{"uml"}},
	{`GRÖSSE`, nil},
	{`café`, []string{"uml"}},
	{`cafe`, nil},
	{`ошибка`, []string{"cjk"}},
	{`ОШИБКА`, []string{"cjk"}},
	{`東京`, []string{"cjk"}},
	{`京東`, nil},
	{`サーバー`, []string{"cjk"}},
	{`한국어`, []string{"cjk"}},
	{`"***"`, nil},
	{`""`, nil},
	{`severity:debug AND NOT "***"`, []string{"sym", "empty", "stop"}},
	{`"and"`, []string{"stop", "star"}},
	{`the`, []string{"stop"}},
	{`"to be"`, []string{"stop"}},
	{`foo.bar`, []string{"dash"}},
	{`foo_bar`, []string{"dash"}},
	{`"foo:bar"`, []string{"dash"}},
	{`"foo,bar"`, []string{"dash"}},
	{`"foo bar"`, []string{"dash"}},
	{`e-1042`, []string{"dash"}},
	{`1042`, []string{"dash"}},
	{`"1,000.5"`, []string{"dash"}},
	{`1000.5`, nil},
	{`🚀`, []string{"emoji"}},
	{`deploy done`, []string{"emoji"}},
	{`* AND site:rome`, []string{"json", "star", "dash", "emoji"}},
	{`message:disk`, []string{"json"}},
	{`message:(disk OR glob)`, []string{"json", "star"}},
	{`site:paris* OR muster.site:rome`, []string{"oom", "oom2", "json", "star", "dash", "emoji"}},
	{`labels.status:>=500`, []string{"path", "kv"}},
	{`labels.status:>=503`, []string{"path", "kv"}},
	{`labels.status:>503`, []string{"kv"}},
	{`labels.status:<500`, []string{"star"}},
	{`labels.status:[500 TO 599]`, []string{"path"}},
	{`labels.status:[500 TO *]`, []string{"path", "kv"}},
	{`labels.status:{503 TO *]`, []string{"kv"}},
	{`labels.status:{* TO 503}`, []string{"star"}},
	{`labels.status:[* TO *]`, []string{"path", "kv", "star", "emoji"}},
	{`labels.status:(>499 AND <600)`, []string{"path"}},
	{`labels.status:>=6000`, nil},
	{`labels.took:>0.5`, []string{"path", "kv"}},
	{`labels.took:[-3 TO 0.75]`, []string{"kv", "star"}},
	{`labels.took:<0`, []string{"star"}},
	{`_exists_:labels.took NOT labels.took:>0`, []string{"star", "emoji"}},
	{`NOT labels.status:>=500 AND site:rome`, []string{"json", "star", "dash", "emoji"}},
	{`labels.path:/\/api\/v[12].*/`, []string{"path", "kv"}},
	{`labels.path:/\/API.*/`, nil},
	{`labels.path:/(?i)\/API\/.*/`, []string{"path", "kv", "star"}},
	{`labels.path:/.*users/`, []string{"path", "star"}},
	{`labels.path:/api/`, nil}, // the whole value has to fit
	{`labels.path:/.*a\+b/`, []string{"kv"}},
	{`labels.path:/.*ü.ß/`, []string{"emoji"}},
	{`labels.path:*users`, []string{"path", "star"}},
	{`labels.path:\/api*users`, []string{"path", "star"}},
	{`labels.path:?api?v?*`, []string{"path", "kv", "star"}},
	{`labels.nosuch:/.*/`, nil},
	{`*efuse?`, []string{"conn"}},
	{`pod:?eb-*`, []string{"conn", "conn2"}},
	{`?`, []string{"path", "cjk", "star", "dash", "emoji"}},
	{`pod:/(web|checkout)-\d/`, []string{"oom", "oom2", "conn"}},
	{`pod:/odd.pod|api\.v[0-9]{1,2}/`, []string{"path", "star"}},
	{`pod:/odd\*.+/`, []string{"star"}},
	{`pod:/web-[^1]*1?0?/`, []string{"conn", "conn2"}},
	{`pod:/(web-1)?/`, []string{"conn"}},
	{`severity:/ERR.*/`, []string{"oom", "conn", "cjk", "json"}},
	{`unit:/[a-z\d]+\.service/`, []string{"kv", "uml", "cjk"}},
	{`message:/Conn.*n/`, []string{"conn", "conn2"}},
	{`/KILL(ed|ing)/`, []string{"oom"}},
	{`/größ.*/`, []string{"uml"}},
	{`/GRÖ.E/`, []string{"uml"}},
	{`/out of/`, nil}, // one word has to fit
	{`/out|refused/ AND NOT severity:/warn.*/`, []string{"oom", "conn"}},
	{`nothinglikethis`, nil},
	{`nothing*`, nil},
}

func testQuery(t *testing.T, f Factory) {
	s := f(t, Config{})
	records := slices.Clone(lines)
	for i := range records {
		records[i].Tenant = "acme"
		records[i].Timestamp = base().Add(time.Duration(i) * time.Minute)
	}
	mustStore(t, s, records...)
	check := func(text string, want []string) {
		t.Helper()
		p := find(t, s, store.Query{Tenant: "acme", Text: text})
		got := ids(p.Hits)
		slices.Sort(got)
		want = slices.Clone(want)
		slices.Sort(want)
		if !slices.Equal(got, want) || p.Total != int64(len(want)) {
			t.Errorf("%s\n   finds %v (total %d)\n   want  %v", text, got, p.Total, want)
		}
	}
	for _, q := range queries {
		check(q.text, q.want)
	}
	at := func(i int) string { return base().Add(time.Duration(i) * time.Minute).Format(time.RFC3339Nano) }
	var all []string
	for _, r := range records {
		all = append(all, r.ID)
	}
	check("", all)
	check("*", all)
	check(fmt.Sprintf("@timestamp:[%s TO %s]", at(2), at(4)), all[2:5])
	check(fmt.Sprintf("@timestamp:{%s TO %s}", at(2), at(4)), all[3:4])
	check(fmt.Sprintf("@timestamp:[%s TO %s}", at(2), at(4)), all[2:4])
	check(fmt.Sprintf("@timestamp:[* TO %s]", at(1)), all[:2])
	check(fmt.Sprintf("@timestamp:>%s", at(12)), all[13:])
	check(fmt.Sprintf("timestamp:<=%s", at(0)), all[:1])
	check(fmt.Sprintf("NOT @timestamp:>=%s", at(1)), all[:1])
	check(fmt.Sprintf("@timestamp:\"%s\"", at(3)), all[3:4])
	check(fmt.Sprintf("@timestamp:<%s OR @timestamp:>%s", at(1), at(13)), []string{all[0], all[14]})
	check("@timestamp:"+base().Format(time.DateOnly), all)
	check("@timestamp:[now-72h TO now]", all)
	check("@timestamp:>now", nil)
}
