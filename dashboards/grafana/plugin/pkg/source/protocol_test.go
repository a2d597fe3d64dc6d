package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/protocoltest"
	"muster.dev/muster/dashboards/grafana/plugin/pkg/source"
)

func TestMain(m *testing.M) { os.Exit(protocoltest.Main(m)) }

// document is the console's own, which the repository holds beside.
const document = "../../../../console/openapi.yaml"

const (
	dim   = `{"score":88.5,"colour":"green","known":true,"staleSeconds":0}`
	paris = `"name":"paris-07","tenant":"acme","region":"eu-west","virtualSites":["shared/all-eu"],"phase":"Online","lastSeen":"2026-01-31T12:00:00Z",
"score":39.5,"colour":"red","since":"2026-01-31T11:00:00Z","dimensions":{"connectivity":` + dim + `,"reliability":{"score":0,"colour":"red","known":true,"staleSeconds":0},"security":` + dim + `,
"performance":{"score":null,"colour":"grey","known":false,"staleSeconds":0}},"reasons":[{"dimension":"reliability","signal":"nodes-not-ready","value":1,"threshold":0,"pointsLost":61,"since":"2026-01-31T12:00:00Z","text":"1 node is not ready"},
{"dimension":"reliability","signal":"restarts","value":null,"threshold":null,"pointsLost":2,"since":null,"text":"pods restart"}],"place":{"latitude":48.85,"longitude":2.35,"address":"Paris"},"maintenance":null`
	rome = `"name":"rome-01","tenant":"acme","region":"eu-south","virtualSites":[],"phase":"Pending","lastSeen":null,"score":null,"colour":"grey","since":null,
"dimensions":{"connectivity":` + dim + `,"reliability":` + dim + `,"security":` + dim + `,"performance":` + dim + `},"reasons":[],"place":null,"maintenance":{"reason":"new router","until":null}`
	alert = `{"fingerprint":"8a1f6b7c2d3e4f50","name":"SiteDown","tenant":"acme","site":"paris-07","region":"eu-west","virtualSites":["shared/all-eu"],"severity":"critical","state":"active","silencedBy":[],"inhibitedBy":[],
"startsAt":"2026-01-31T11:58:00Z","updatedAt":"2026-01-31T11:59:00Z","endsAt":null,"labels":{"alertname":"SiteDown"},"annotations":{"summary":"paris-07 is down"},"generatorURL":"http://eu-1/graph"}`
	colours = `{"green":1,"orange":0,"red":1,"grey":0}`
	counts  = `{"total":3,"waiting":0,"updating":1,"updated":2,"passed":1,"failed":0,"offline":0,"held":0,"rolledBack":0}`
	rollout = `{"tenant":"acme","namespace":"shop","name":"web-2","createdAt":"2026-01-31T11:00:00Z","phase":"Progressing","message":"soaks","changes":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","text":"web=shop/web:2"}],
"virtualSites":["shared/all-eu"],"strategy":"Canary","progress":"1/2","wave":1,"waveCount":2,"waves":[],"sites":` + counts + `,"paused":false,"next":"","nextAt":null,"startedAt":"2026-01-31T11:10:00Z","endedAt":"2026-01-31T11:40:00Z"}`
)

func site(name string) string {
	return `{"name":"` + name + `","tenant":"acme","phase":"Online","labels":{"region":"eu-west","store":"` + name[len(name)-2:] + `"},"systemLabels":{"muster.dev/system-arch":"amd64"},"versions":{"agent":"0.1.0"},
"conditions":[{"type":"PolicyApplied","status":"False","reason":"Refused","message":"spec.allow","lastTransitionTime":"2026-01-31T09:00:00Z"}],"place":null,"maintenance":{"reason":"new router","until":"2026-01-31T12:30:00Z"},
"maintenanceWindows":[{"name":"updates","reason":"monthly","start":"2026-01-31T10:30:00Z","schedule":"","timeZone":"","duration":"2h0m0s"}],"regional":"eu-1","software":[],"reset":null,"lastSeen":null,"createdAt":"2025-11-02T08:00:00Z","certificateNotAfter":null,
"policyHash":"","token":"","approved":true,"decommissioned":false}`
}

func answers() map[string]string {
	return map[string]string{
		"/session":               `{"user":"alice","groups":["sre"],"tenants":["acme"]}`,
		"/health/sites":          `{"asOf":"2026-01-31T12:00:00Z","total":2,"sites":[{` + paris + `},{` + rome + `}]}`,
		"/health/sites/paris-07": `{` + paris + `,"asOf":"2026-01-31T12:00:00Z","labels":{},"policy":"","regional":"eu-1","fromStore":false,"shadow":null,"signals":[{"name":"nodes-not-ready","dimension":"reliability","value":1,"score":0,"known":true,"applies":true,"pack":"","error":"","good":0,"bad":1,"weight":3,"critical":true,"unit":"count","source":"ksm","query":"count by (tenant, site) (kube_node_status_condition)","sparse":false,"asOf":null},{"name":"gpu","dimension":"reliability","value":null,"score":null,"known":false,"applies":false,"pack":"gpu","error":"","good":0,"bad":1,"weight":1,"critical":false,"unit":"","source":"","query":"","sparse":true,"asOf":null}]}`,
		"/health/virtualsites":   `{"asOf":"2026-01-31T12:00:00Z","total":1,"virtualSites":[{"name":"all-eu","namespace":"shared","tenant":"acme","description":"","sites":3,"mean":80,"p10":39,"worst":{"site":"paris-07","score":39},"counts":{"green":2,"orange":0,"red":1,"grey":0},"maintenance":0,"percentUnhealthy":33.3}]}`,
		"/site-fields":           `{"fields":[],"labels":[{"key":"region","values":["eu-west"],"more":0},{"key":"store","values":["07"],"more":0}],"versions":[{"key":"agent","values":["0.1.0"],"more":0}],"measured":["disk-used"]}`,
		"/sites":                 `{"asOf":"2026-01-31T12:00:00Z","columns":["name"],"readable":3,"total":2,"counts":` + colours + `,"groups":[{"value":"07","query":"store=07","sites":1,"counts":` + colours + `,"mean":80,"worst":39},{"value":"","query":"store=","sites":1,"counts":` + colours + `,"mean":null,"worst":null}],"notes":["alerts are unknown"],"sites":[{"name":"paris-07","tenant":"acme","phase":"Online","score":39.5,"lastSeen":"2026-01-31T11:59:58Z","virtualSite":["shared/all-eu","shared/b"],"label.store":"07","version.agent":"0.1.0"},{"name":"rome-01","tenant":"acme","phase":"Pending","score":null,"lastSeen":null}]}`,
		"/sites/paris-07":        site("paris-07"),
		"/sites/rome-01":         site("rome-01"),
		"/virtualsites/shared/all-eu/maintenance/windows": `{"tenant":"acme","namespace":"shared","name":"all-eu","maintenanceWindows":[{"name":"night","reason":"weekly","start":null,"schedule":"0 2 * * *","timeZone":"","duration":"1h0m0s"}]}`,
		"/alerts":   `{"asOf":"2026-01-31T12:00:00Z","total":1,"counts":{"critical":1,"warning":0,"info":0},"alerts":[` + alert + `]}`,
		"/rollouts": `{"total":1,"rollouts":[` + rollout + `]}`,
		"/logs/search": `{"hits":[{"timestamp":"2026-01-31T11:59:58.123456789Z","tenant":"acme","site":"paris-07","region":"eu-west","node":"n1","namespace":"shop","pod":"checkout-5d4f","container":"app","unit":"","severity":"error","message":"out of memory","labels":{"app":"checkout"},"id":"01JQ2Z"}],
"total":7,"histogram":{"start":"2026-01-31T11:00:00Z","stepSeconds":60,"counts":[0,7]},"missingRegions":[{"region":"us-1","reason":"did not answer within 10s"}]}`,
		"/timeline":            `{"events":[{"id":"1898b6c24ce0c6000062014182ed3867","time":"2026-01-31T11:20:00Z","kind":"colour","severity":"critical","tenant":"acme","site":"paris-07","text":"green → red","by":"health"}]}`,
		"/metrics/query_range": `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"muster_site_health_score","site":"rome-01"},"values":[[1769860800,"100"]]},{"metric":{"__name__":"muster_site_health_score","site":"paris-07"},"values":[[1769860800,"39.5"],[1769860815.5,"NaN"]]}]}}`,
	}
}

func start(t *testing.T) (*protocoltest.Console, *protocoltest.Plugin) {
	t.Helper()
	c := protocoltest.NewConsole(t, document, answers())
	p := protocoltest.Start(t, c.URL+"/", `{"tenant":"acme"}`, "secret")
	p.From, p.To = time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	return c, p
}

// cells are a frame's rows as text, of these columns.
func cells(t *testing.T, f *data.Frame, columns ...string) (out []string) {
	t.Helper()
	for i := range f.Rows() {
		var row []string
		for _, name := range columns {
			field, n := f.FieldByName(name)
			if n < 0 {
				t.Fatalf("frame %s has no column %s: %v", f.Name, name, f.Fields)
			}
			v, ok := field.ConcreteAt(i)
			switch at := v.(type) {
			case time.Time:
				v = at.UTC().Format("15:04:05.999999999")
			case json.RawMessage:
				v = string(at)
			}
			if !ok {
				v = "null"
			}
			row = append(row, fmt.Sprint(v))
		}
		out = append(out, strings.Join(row, " | "))
	}
	return out
}

func TestQueries(t *testing.T) {
	c, p := start(t)
	for _, x := range []struct {
		query, path string
		params      string // of the last question, some of them
		frame       int
		columns     string
		want        []string
		kind        data.FrameType
	}{
		{`{"queryType":"health","virtualSite":"shared/all-eu","sort":"score","colour":"red"}`, "/health/sites", "tenant=acme&virtualSite=shared/all-eu&colour=red&sort=score&limit=1000", 0,
			"site,score,colour,reliability,performance,reasons,latitude,maintenance", []string{"paris-07 | 39.5 | red | 0 | null | 1 node is not ready; pods restart | 48.85 | ", "rome-01 | null | grey | 88.5 | 88.5 |  | null | new router"}, data.FrameTypeTable},
		{`{"queryType":"health","numeric":true}`, "/health/sites", "", 0, "tenant,site,region,score", []string{"acme | paris-07 | eu-west | 39.5", "acme | rome-01 | eu-south | null"}, data.FrameTypeNumericLong},
		{`{"queryType":"health","health":"sites","site":"paris-07"}`, "/health/sites/paris-07", "tenant=acme", 0, "site,score", []string{"paris-07 | 39.5"}, data.FrameTypeTable},
		{`{"queryType":"health","health":"virtualSites"}`, "/health/virtualsites", "", 0, "virtual site,sites,mean,p10,worst,worst site,red", []string{"shared/all-eu | 3 | 80 | 39 | 39 | paris-07 | 1"}, data.FrameTypeTable},
		{`{"queryType":"health","health":"reasons","site":"paris-07"}`, "/health/sites/paris-07", "", 0, "text,points lost,value", []string{"1 node is not ready | 61 | 1", "pods restart | 2 | null"}, data.FrameTypeTable},
		{`{"queryType":"health","health":"signals","site":"paris-07"}`, "/health/sites/paris-07", "", 0, "signal,value,critical", []string{"nodes-not-ready | 1 | true"}, data.FrameTypeTable},
		{`{"queryType":"health","health":"history","virtualSite":"shared/all-eu"}`, "/metrics/query_range",
			`tenant=acme&step=36&query=muster_site_health_score{} and on (tenant, site) muster_virtual_site_member{virtual_site="shared/all-eu"}`, 0, "time,muster_site_health_score", []string{"12:00:00 | 39.5", "12:00:15.5 | NaN"}, data.FrameTypeTimeSeriesMulti},
		{`{"queryType":"health","health":"history","site":"a\"b","dimension":"security"}`, "/metrics/query_range", `query=muster_site_health_dimension_score{dimension="security",site="a\"b",}`, 1, "time,muster_site_health_score", []string{"12:00:00 | 100"}, data.FrameTypeTimeSeriesMulti},
		{`{"queryType":"metrics","expr":"up"}`, "/metrics/query_range", "query=up", 1, "muster_site_health_score", []string{"100"}, data.FrameTypeTimeSeriesMulti},
		{`{"queryType":"sites","sites":"list","text":"score<60 OR tier=gold","virtualSite":"shared/all-eu","region":"a\"b"}`, "/sites", `limit=1000&columns=phase,score,colour,region,regional,lastSeen,virtualSite,label.region,label.store,version.agent`, 0,
			"site,score,last seen,virtualSite,label.store,version.agent", []string{"paris-07 | 39.5 | 11:59:58 | shared/all-eu, shared/b | 07 | 0.1.0", "rome-01 | null | null |  |  | "}, data.FrameTypeTable},
		{`{"queryType":"sites","sites":"conditions","site":"paris-07"}`, "/sites/paris-07", "", 0, "site,condition,status,message", []string{"paris-07 | PolicyApplied | False | spec.allow"}, data.FrameTypeTable},
		{`{"queryType":"sites","sites":"details","site":"paris-07"}`, "/sites/paris-07", "", 0, "what,name,value", []string{"site | phase | Online", "site | regional | eu-1", "label | region | eu-west", "label | store | 07", "system label | muster.dev/system-arch | amd64", "version | agent | 0.1.0", "condition | PolicyApplied | False Refused: spec.allow"}, data.FrameTypeTable},
		{`{"queryType":"alerts","severity":"critical","state":"all","site":"$site"}`, "/alerts", "severity=critical&state=all", 0, "alert,severity,site,summary,since,labels", []string{`SiteDown | critical | paris-07 | paris-07 is down | 11:58:00 | {"alertname":"SiteDown"}`}, data.FrameTypeTable},
		{`{"queryType":"alerts","numeric":true}`, "/alerts", "state=active", 0, "alerts", []string{"1"}, data.FrameTypeNumericWide},
		{`{"queryType":"rollouts","state":"active"}`, "/rollouts", "state=active", 0, "rollout,phase,wave,changes,updated,passed", []string{"web-2 | Progressing | 1/2 | Deployment/web web=shop/web:2 | 2 | 1"}, data.FrameTypeTable},
		{`{"queryType":"logs","query":"severity:error","site":"paris-07"}`, "/logs/search", "query=severity:error&site=paris-07&patience=2s&from=2026-01-31T11:00:00Z&to=2026-01-31T12:00:00Z", 0, "timestamp,body,severity,id,labels",
			[]string{`11:59:58.123456789 | out of memory | error | 2026-01-31T11:59:58.123456789Z_01JQ2Z | {"app":"checkout","container":"app","namespace":"shop","node":"n1","pod":"checkout-5d4f","region":"eu-west","site":"paris-07","tenant":"acme"}`}, data.FrameTypeLogLines},
		{`{"queryType":"logs"}`, "/logs/search", "", 1, "time,lines", []string{"11:00:00 | 0", "11:01:00 | 7"}, data.FrameTypeTimeSeriesWide},
		{`{"queryType":"annotations","annotations":"timeline","site":"paris-07","kinds":"colour, alert"}`, "/timeline", "site=paris-07&kind=colour&from=2026-01-31T11:00:00Z&to=2026-01-31T12:00:00Z", 0, "time,title,text,tags", []string{"11:20:00 | colour | paris-07: green → red (health) | colour,critical"}, ""},
		{`{"queryType":"annotations","annotations":"alerts","site":"paris-07"}`, "/alerts", "site=paris-07", 0, "time,timeEnd,title,text,tags", []string{"11:58:00 | null | SiteDown | paris-07: paris-07 is down | alert,critical"}, ""},
		{`{"queryType":"annotations","annotations":"rollouts","virtualSite":"shared/all-eu"}`, "/rollouts", "", 0, "time,timeEnd,title", []string{"11:10:00 | 11:40:00 | shop/web-2: Progressing"}, ""},
		{`{"queryType":"annotations","annotations":"rollouts","virtualSite":"shared/asia"}`, "/rollouts", "", 0, "time", nil, ""},
		{`{"queryType":"annotations","annotations":"maintenance","site":"paris-07"}`, "/sites/paris-07", "", 0, "time,timeEnd,text", []string{"11:00:00 | 12:30:00 | new router", "10:30:00 | 12:30:00 | monthly"}, ""},
		{`{"queryType":"annotations","annotations":"maintenance","virtualSite":"shared/all-eu"}`, "/virtualsites/shared/all-eu/maintenance/windows", "", 0, "time", nil, ""},
	} {
		t.Run(x.query, func(t *testing.T) {
			frames, err := p.Query(x.query)
			if err != nil {
				t.Fatal(err)
			}
			if len(frames) <= x.frame {
				t.Fatalf("%d frames", len(frames))
			}
			f := frames[x.frame]
			if got := cells(t, f, strings.Split(x.columns, ",")...); !slices.Equal(got, x.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(x.want, "\n"))
			}
			if x.kind != "" && f.Meta.Type != x.kind {
				t.Errorf("the frame is %s, want %s", f.Meta.Type, x.kind)
			}
			last := c.Last()
			if !strings.HasPrefix(last.Path, "/api/v1"+x.path) || last.Authorization != "Bearer secret" {
				t.Errorf("it asked %s as %q", last.Path, last.Authorization)
			}
			for _, kv := range strings.Split(x.params, "&") {
				if k, v, _ := strings.Cut(kv, "="); k != "" && last.Params.Get(k) != v {
					t.Errorf("%s is %q, want %q", k, last.Params.Get(k), v)
				}
			}
		})
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	_, p := start(t)
	frames, err := p.Query(`{"queryType":"logs","limit":1}`)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, n := range frames[0].Meta.Notices {
		said = append(said, n.Text)
	}
	if got := strings.Join(said, "; "); got != "1 of 7: raise the limit, or ask for fewer; Without the regions us-1 (did not answer within 10s)" {
		t.Errorf("notices: %s", got)
	}
}

// A table that is cut says so, and is cut after what was asked for was chosen.
func TestTablesSayThatTheyAreCut(t *testing.T) {
	c, p := start(t)
	site := `{"name": "%s", "namespace": "shared", "tenant": "acme", "description": "", "sites": 3, "mean": 80, "p10": 39, "worst": {"site": "paris-07", "score": 39}, "counts": {"green": 2, "orange": 0, "red": 1, "grey": 0}, "maintenance": 0, "percentUnhealthy": 33.3}`
	c.Answer("/health/virtualsites", `{"asOf":"2026-01-31T12:00:00Z","total":3,"virtualSites":[`+fmt.Sprintf(site, "a")+`,`+fmt.Sprintf(site, "b")+`,`+fmt.Sprintf(site, "c")+`]}`)
	c.Answer("/rollouts", `{"total":2,"rollouts":[`+rollout+`,`+rollout+`]}`)
	for query, want := range map[string]string{
		`{"queryType":"health","health":"virtualSites","limit":1,"virtualSite":"shared/b"}`: "1 rows: ",
		`{"queryType":"health","health":"virtualSites","limit":2}`:                          "2 rows: 2 of 3: raise the limit, or ask for fewer",
		`{"queryType":"health","health":"virtualSites","limit":3}`:                          "3 rows: ",
		`{"queryType":"rollouts","limit":1}`:                                                "1 rows: the newest 1: raise the limit, or ask for fewer",
		`{"queryType":"rollouts","limit":2}`:                                                "2 rows: ",
	} {
		frames, err := p.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%d rows: ", frames[0].Rows())
		if frames[0].Meta != nil {
			for _, n := range frames[0].Meta.Notices {
				got += n.Text
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestTheInventorysLanguage(t *testing.T) {
	c, p := start(t)
	frames, err := p.Query(`{"queryType":"sites","text":"score<60 OR tier=gold","virtualSite":"shared/all-eu","region":"a\"b"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Last().Params.Get("q"); got != `(score<60 OR tier=gold) virtualSite="shared/all-eu" region="a\"b"` {
		t.Errorf("it asked for %s", got)
	}
	if n := frames[0].Meta.Notices; len(n) != 1 || n[0].Text != "alerts are unknown" {
		t.Errorf("notices: %v", n)
	}
}

// TestSeveralValues: a variable with several values comes as {a,b}.
func TestSeveralValues(t *testing.T) {
	c, p := start(t)
	for query, want := range map[string]string{
		`{"queryType":"logs","site":"{paris-07,rome-01}","severity":"{error}"}`:                       "site=paris-07,rome-01&severity=error",
		`{"queryType":"sites","site":"{paris-07,rome-01}","region":"eu-west"}`:                        `q=name in ("paris-07", "rome-01") region="eu-west"`,
		`{"queryType":"annotations","site":"{paris-07,rome-01}"}`:                                     "site=paris-07",
		`{"queryType":"health","region":"{eu-west,eu-south}"}`:                                        "400 downstream: region: the variable has 2 values",
		`{"queryType":"alerts","site":"{paris-07,rome-01}"}`:                                          "400 downstream: site: the variable has 2 values",
		`{"queryType":"health","health":"history","virtualSite":"{shared/a,shared/b}","stat":"mean"}`: "400 downstream: virtualSite: the variable has 2 values",
		`{"queryType":"logs","query":"message:{1 TO 5}"}`:                                             "query=message:{1 TO 5}",
		`{"queryType":"alerts","site":"$__all","severity":"$severity"}`:                               "site=&severity=",
		// What another kind of query left.
		`{"queryType":"rollouts","severity":"error","text":"web","namespace":"{shop}","site":"{a,b}","colour":"red"}`: "namespace=shop&q=web&severity=",
		`{"queryType":"health","severity":"error","state":"ended","namespace":"shop","region":"eu-west"}`:             "region=eu-west&state=&namespace=",
		`{"queryType":"annotations","annotations":"alerts","state":"ended","text":"web","site":"paris-07"}`:           "site=paris-07&state=&q=",
	} {
		if _, err := p.Query(query); err != nil {
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v, want %s", query, err, want)
			}
			continue
		}
		for _, kv := range strings.Split(want, "&") {
			if k, v, _ := strings.Cut(kv, "="); c.Last().Params.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", query, k, c.Last().Params.Get(k), v)
			}
		}
	}
}

// TestStepsAndIntervals: whatever the time, the metric store gives no more than 11,000 points, and an alert
// rule has nobody in the browser to fill in how long a step is.
func TestStepsAndIntervals(t *testing.T) {
	c, p := start(t)
	p.Headers["FromAlert"] = "true"
	for hours, want := range map[int]string{1: "1", 4: "2", 24: "9"} {
		p.From = p.To.Add(-time.Duration(hours) * time.Hour)
		p.Points = 50_000
		if _, err := p.Query(`{"queryType":"metrics","expr":"rate(x[$__rate_interval]) + rate(x[${__interval}]) + y[$__range] > $__interval_ms / $__range_s"}`); err != nil {
			t.Fatal(err)
		}
		seconds := hours * 3600
		if got := c.Last().Params; got.Get("step") != want || got.Get("query") != fmt.Sprintf("rate(x[60s]) + rate(x[%ss]) + y[%ds] > %s000 / %d", want, seconds, want, seconds) {
			t.Errorf("%d hours: a step of %s, want %s; %s", hours, got.Get("step"), want, got.Get("query"))
		}
	}
}

func TestErrorsNameTheFieldAndWhoseFaultItIs(t *testing.T) {
	c, p := start(t)
	c.Answer("/alerts", `403 {"type":"urn:muster:problem:forbidden","title":"Forbidden","status":403,"detail":"you may not read tenant \"acme\", or there is none"}`)
	c.Answer("/rollouts", `503 {"type":"urn:muster:problem:unavailable","title":"Service Unavailable","status":503,"detail":"the API server can't be reached"}`)
	for query, want := range map[string]string{
		`{"queryType":"wealth"}`:                                                  `400 downstream: queryType: "wealth": want one of health, sites, alerts, logs, rollouts, metrics, annotations`,
		`{"queryType":"health","health":"x"}`:                                     `400 downstream: health: "x": want one of sites, virtualSites, reasons, signals, history, live`,
		`{"queryType":"health","health":"reasons"}`:                               `400 downstream: site: name one`,
		`{"queryType":"health","limit":20000}`:                                    `400 downstream: limit: 20000: want 1 to 10000, or 0 for 1000`,
		`{"queryType":"health","limit":"many"}`:                                   `400 downstream: query: json: cannot unmarshal`,
		`{"queryType":"metrics"}`:                                                 `400 downstream: expr: write an expression of PromQL`,
		`{"queryType":"annotations","annotations":"gossip"}`:                      `400 downstream: annotations: "gossip": want one of`,
		`{"queryType":"alerts"}`:                                                  `403 downstream: you may not read tenant "acme", or there is none`,
		`{"queryType":"rollouts"}`:                                                `502 downstream: the API server can't be reached`,
		`{"queryType":"health","health":"history","site":"a","dimension":"luck"}`: `400 downstream: dimension: "luck": want one of all, connectivity`,
	} {
		if _, err := p.Query(query); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// A rule takes every kind of query that has numbers, as Grafana's contract for its data wants them;
// of every other kind it is told what to ask for.
func TestAlertRulesGetNumbers(t *testing.T) {
	c, p := start(t)
	p.Headers["FromAlert"] = "true"
	refused := func(field, value string) string {
		return fmt.Sprintf("400 downstream: %s: %q: an alert rule takes numbers: want health of sites, virtualSites or history, alerts, logs or metrics", field, value)
	}
	type rule struct {
		kind    data.FrameType
		columns string
		want    []string // of all frames
		refusal string
	}
	scores := rule{data.FrameTypeNumericLong, "tenant,site,region,score", []string{"acme | paris-07 | eu-west | 39.5", "acme | rome-01 | eu-south | null"}, ""}
	history := rule{data.FrameTypeTimeSeriesMulti, "time,muster_site_health_score", []string{"12:00:00 | 39.5", "12:00:15.5 | NaN", "12:00:00 | 100"}, ""}
	rules := map[string]rule{
		"health/sites":            scores,
		"health/live":             scores,
		"health/virtualSites":     {data.FrameTypeNumericLong, "tenant,virtual site,mean,p10,worst", []string{"acme | shared/all-eu | 80 | 39 | 39"}, ""},
		"health/history":          history,
		"health/reasons":          {refusal: refused("health", "reasons")},
		"health/signals":          {refusal: refused("health", "signals")},
		"sites/list":              {refusal: refused("sites", "list")},
		"sites/details":           {refusal: refused("sites", "details")},
		"sites/conditions":        {refusal: refused("sites", "conditions")},
		"alerts/":                 {data.FrameTypeNumericWide, "alerts", []string{"1"}, ""},
		"logs/":                   {data.FrameTypeTimeSeriesWide, "time,lines", []string{"11:00:00 | 0", "11:01:00 | 7"}, ""},
		"rollouts/":               {refusal: refused("queryType", "rollouts")},
		"metrics/":                history,
		"annotations/timeline":    {refusal: refused("annotations", "timeline")},
		"annotations/alerts":      {refusal: refused("annotations", "alerts")},
		"annotations/rollouts":    {refusal: refused("annotations", "rollouts")},
		"annotations/maintenance": {refusal: refused("annotations", "maintenance")},
	}
	for _, kind := range kindsOffered(t) {
		want, known := rules[kind]
		if !known {
			t.Errorf("%s: nobody says what a rule gets of it", kind)
			continue
		}
		queryType, of, _ := strings.Cut(kind, "/")
		ask, _ := json.Marshal(map[string]string{"queryType": queryType, queryType: of, "expr": "up", "site": map[bool]string{true: "paris-07"}[want.refusal != ""]})
		frames, err := p.Query(string(ask))
		if want.refusal != "" {
			if err == nil || err.Error() != want.refusal {
				t.Errorf("%s: %v, want %s", kind, err, want.refusal)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		var got []string
		for _, f := range frames {
			got = append(got, cells(t, f, strings.Split(want.columns, ",")...)...)
			if f.Meta.Type != want.kind {
				t.Errorf("%s: the frame is %s, want %s", kind, f.Meta.Type, want.kind)
			}
			if err := takenByRules(f); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if !slices.Equal(got, want.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", kind, strings.Join(got, "\n"), strings.Join(want.want, "\n"))
		}
	}
	// What is silenced does not alert by another way, unless the rule says so.
	for query, want := range map[string]string{`{"queryType":"alerts"}`: "active", `{"queryType":"alerts","state":"all"}`: "all"} {
		if _, err := p.Query(query); err != nil || c.Last().Params.Get("state") != want {
			t.Errorf("%s asks for the state %q, want %s: %v", query, c.Last().Params.Get("state"), want, err)
		}
	}
	// A rule watches all sites, and does not read lines and alerts that it only counts.
	for query, want := range map[string]string{`{"queryType":"alerts"}`: "1", `{"queryType":"logs"}`: "1"} {
		if _, err := p.Query(query); err != nil || c.Last().Params.Get("limit") != want {
			t.Errorf("%s asks for %q of them, want %s: %v", query, c.Last().Params.Get("limit"), want, err)
		}
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = "{" + strings.Replace(paris, "paris-07", fmt.Sprintf("site-%04d", i), 1) + "}"
	}
	c.Answer("/health/sites", `{"asOf":"2026-01-31T12:00:00Z","total":50000,"nextCursor":"more","sites":[`+strings.Join(many, ",")+`]}`)
	for limit, want := range map[string]int{"": 10_000, `,"limit":1500`: 2000} { // whole pages, as this console gives them
		frames, err := p.Query(`{"queryType":"health"` + limit + `}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := frames[0].Rows(); got != want {
			t.Errorf("with the limit %q a rule gets %d rows, want %d", limit, got, want)
		}
	}
}

// kindsOffered are all kinds of query that the editor has.
func kindsOffered(t *testing.T) (out []string) {
	b, err := os.ReadFile("../../src/choices.json")
	if err != nil {
		t.Fatal(err)
	}
	var choices map[string][]string
	if err := json.Unmarshal(b, &choices); err != nil {
		t.Fatal(err)
	}
	for _, queryType := range choices["queryType"] {
		for _, of := range append(choices[queryType], map[bool][]string{true: {""}}[choices[queryType] == nil]...) {
			out = append(out, queryType+"/"+of)
		}
	}
	return out
}

// takenByRules is whether Grafana's expressions read a frame as numbers: a series with its times in
// order, or numbers that no two rows have of the same labels.
// https://grafana.com/developers/dataplane/contract
func takenByRules(f *data.Frame) error {
	times, numbers, labels := 0, 0, map[string]bool{}
	for _, field := range f.Fields {
		switch {
		case field.Type().Time():
			times++
			for i := 1; i < field.Len(); i++ {
				if before, _ := field.ConcreteAt(i - 1); !before.(time.Time).Before(field.At(i).(time.Time)) {
					return fmt.Errorf("row %d is not after that before", i)
				}
			}
		case field.Type().Numeric():
			numbers++
		case field.Type() != data.FieldTypeString:
			return fmt.Errorf("%s is neither a number nor a label: %s", field.Name, field.Type())
		}
	}
	series := strings.HasPrefix(string(f.Meta.Type), "timeseries")
	if numbers == 0 || series != (times == 1) || times > 1 {
		return fmt.Errorf("%s with %d times and %d numbers", f.Meta.Type, times, numbers)
	}
	if f.Meta.Type == data.FrameTypeNumericWide && f.Rows() != 1 {
		return fmt.Errorf("%s with %d rows", f.Meta.Type, f.Rows())
	}
	for i := range f.Rows() {
		key := ""
		for _, field := range f.Fields {
			if field.Type() == data.FieldTypeString {
				key += fmt.Sprintf("%q", field.At(i))
			}
		}
		if labels[key] && !series {
			return fmt.Errorf("two rows of %s", key)
		}
		labels[key] = true
	}
	return nil
}

// Grafana finds the binary and the data sources by what is written there.
func TestPluginJSON(t *testing.T) {
	b, err := os.ReadFile("../../src/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		ID, Executable               string
		Backend, Alerting, Streaming bool
	}
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	if p.ID != source.PluginID || p.Executable != "gpx_muster_fleet" || !p.Backend || !p.Alerting || !p.Streaming {
		t.Errorf("%+v", p)
	}
}

// Whoever looks is who asks: what the console answers depends on it.
func TestIdentity(t *testing.T) {
	c, _ := start(t)
	p := protocoltest.Start(t, c.URL, `{"tenant":"acme","oauthPassThru":true}`, "the-data-sources-own")
	if _, err := p.Query(`{"queryType":"alerts"}`); err == nil || !strings.HasPrefix(err.Error(), "401 downstream: no identity") {
		t.Errorf("without an identity: %v", err)
	}
	if c.Last().Path != "" {
		t.Error("it asked the console all the same, as somebody else")
	}
	p.Headers["Authorization"] = "Bearer alices-access"
	if _, err := p.Query(`{"queryType":"alerts"}`); err != nil || c.Last().Authorization != "Bearer alices-access" {
		t.Errorf("asked as %q: %v", c.Last().Authorization, err)
	}
	p.Headers["X-ID-Token"] = "alices-id"
	if _, err := p.Query(`{"queryType":"alerts"}`); err != nil || c.Last().Authorization != "Bearer alices-id" {
		t.Errorf("asked as %q: %v", c.Last().Authorization, err)
	}
	if code, _ := p.Resource("values/virtual-sites"); code != 200 || c.Last().Authorization != "Bearer alices-id" {
		t.Errorf("a variable asked as %q: %d", c.Last().Authorization, code)
	}
	if status, _ := p.Subscribe("scores/all"); status != backend.SubscribeStreamStatusPermissionDenied {
		t.Errorf("one user's stream would be everybody's: %v", status)
	}
	bare := protocoltest.Start(t, c.URL, `{}`, "")
	if _, err := bare.Query(`{"queryType":"alerts"}`); err == nil || !strings.Contains(err.Error(), "token: none is set") {
		t.Errorf("without a token: %v", err)
	}
}

func TestCheckHealth(t *testing.T) {
	c, p := start(t)
	if ok, msg := p.CheckHealth(); !ok || msg != "The console knows you as alice; tenant: acme" {
		t.Errorf("%t %s", ok, msg)
	}
	c.Answer("/session", `{"user":"bob","groups":[],"tenants":["globex"]}`)
	if ok, msg := p.CheckHealth(); ok || msg != `tenant: "acme": bob may not read it, or there is none; they read globex` {
		t.Errorf("%t %s", ok, msg)
	}
	c.Answer("/session", `401 {"type":"urn:muster:problem:unauthenticated","title":"Unauthorized","status":401,"detail":"the token is not good"}`)
	if ok, msg := p.CheckHealth(); ok || msg != "the console doesn't take this identity: the token is not good" {
		t.Errorf("%t %s", ok, msg)
	}
	nowhere := protocoltest.Start(t, "http://127.0.0.1:1", `{}`, "x")
	if ok, msg := nowhere.CheckHealth(); ok || !strings.HasPrefix(msg, "the console can't be reached") {
		t.Errorf("%t %s", ok, msg)
	}
}

func TestVariables(t *testing.T) {
	c, p := start(t)
	for path, want := range map[string]string{
		"values/virtual-sites":                   `["shared/all-eu"]`,
		"values/sites?virtualSite=shared/all-eu": `["paris-07","rome-01"]`,
		"values/regions":                         `["eu-south","eu-west"]`,
		"values/label-keys":                      `["region","store"]`,
		"values/labels?key=store":                `["07"]`,
	} {
		if code, body := p.Resource(path); code != 200 || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s, want %s", path, code, body, want)
		}
	}
	if code, body := p.Resource("values/labels"); code != 400 || !strings.Contains(body, "key: name a label") {
		t.Errorf("%d %s", code, body)
	}
	c.Answer("/health/virtualsites", `403 {"type":"urn:muster:problem:forbidden","title":"Forbidden","status":403,"detail":"you may not"}`)
	if code, body := p.Resource("values/virtual-sites"); code != 403 || !strings.Contains(body, "you may not") {
		t.Errorf("%d %s", code, body)
	}
}

func TestStream(t *testing.T) {
	c, p := start(t)
	frames, err := p.Query(`{"queryType":"health","health":"live","virtualSite":"shared/all-eu"}`)
	if err != nil || frames[0].Meta.Channel != "ds/muster/scores/virtual-site/shared/all-eu" {
		t.Fatalf("%v, %v", frames, err)
	}
	for path, want := range map[string]backend.SubscribeStreamStatus{"scores/all": backend.SubscribeStreamStatusOK, "scores/site/paris-07": backend.SubscribeStreamStatusOK, "else": backend.SubscribeStreamStatusNotFound, "scores/site/": backend.SubscribeStreamStatusNotFound} {
		if got, _ := p.Subscribe(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := p.Run(ctx, "scores/virtual-site/shared/all-eu")
	go func() {
		c.Send(ctx, "id: 1\nevent: tick\ndata: {\"asOf\":\"2026-01-31T12:00:00Z\"}")
		c.Send(ctx, "event: sites\ndata: {\"asOf\":\"2026-01-31T12:00:01Z\",\"sites\":[{"+strings.ReplaceAll(rome, "\n", "")+"}]}")
		c.Send(ctx, "event: sites\ndata: {\"asOf\":\"2026-01-31T12:00:02Z\",\"sites\":[{"+strings.ReplaceAll(rome, "\n", "")+"},{"+strings.ReplaceAll(paris, "\n", "")+"}]}")
	}()
	f, err := next()
	if err != nil {
		t.Fatal(err)
	}
	// How things are, also if nothing changes for long after the console came back.
	if got := cells(t, f, "labels", "score"); !slices.Equal(got, []string{"region=eu-west, site=paris-07, tenant=acme | 39.5", "region=eu-south, site=rome-01, tenant=acme | null"}) {
		t.Errorf("at first %v", got)
	}
	if f, err = next(); err != nil {
		t.Fatal(err)
	}
	if got := cells(t, f, "labels", "time", "score", "performance"); !slices.Equal(got, []string{"region=eu-west, site=paris-07, tenant=acme | 12:00:02 | 39.5 | null"}) {
		t.Errorf("%v", got)
	}
	if c.Last().Authorization != "Bearer secret" {
		t.Errorf("streamed as %q", c.Last().Authorization)
	}
	c.Answer("/health/sites", `403 {"type":"urn:muster:problem:forbidden","title":"Forbidden","status":403}`)
	if got, _ := p.Subscribe("scores/all"); got != backend.SubscribeStreamStatusPermissionDenied {
		t.Errorf("without rights: %v", got)
	}
}

// Each user has channels of their own, which ask with what came with their last query; Grafana sends no
// identity along with a subscription, nor with the stream.
func TestStreamOfOneUser(t *testing.T) {
	c, _ := start(t)
	p := protocoltest.Start(t, c.URL, `{"tenant":"acme","oauthPassThru":true}`, "the-data-sources-own")
	channel := func(login, token string) string {
		t.Helper()
		p.Login, p.Headers = login, map[string]string{"Authorization": "Bearer " + token}
		defer func() { p.Headers = map[string]string{} }()
		frames, err := p.Query(`{"queryType":"health","health":"live"}`)
		if err != nil {
			t.Fatal(err)
		}
		path, ok := strings.CutPrefix(frames[0].Meta.Channel, "ds/muster/")
		if !ok || !strings.HasSuffix(path, "/scores/all") {
			t.Fatalf("channel %q", frames[0].Meta.Channel)
		}
		return path
	}
	alices, bobs := channel("alice", "alices"), channel("bob", "bobs")
	if alices == bobs {
		t.Fatal("two users share a channel")
	}
	status := func(login, path string) backend.SubscribeStreamStatus {
		p.Login = login
		got, _ := p.Subscribe(path)
		return got
	}
	if got := status("alice", alices); got != backend.SubscribeStreamStatusOK || c.Last().Authorization != "Bearer alices" {
		t.Errorf("her own: %v, asked as %q", got, c.Last().Authorization)
	}
	for login, path := range map[string]string{"bob": alices, "": alices, "alice": "viewer/0123456789abcdef0123456789abcdef/scores/all", "carol": "scores/all"} {
		if got := status(login, path); got != backend.SubscribeStreamStatusPermissionDenied {
			t.Errorf("%q at %s: %v", login, path, got)
		}
	}
	// A newer token is the one that the stream begins with.
	if again := channel("alice", "alices-new"); again != alices {
		t.Errorf("another query moved her channel to %s", again)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.Login = "bob"
	if _, err := p.Run(ctx, alices)(); err == nil || !strings.Contains(err.Error(), "belongs to somebody else") {
		t.Errorf("another's stream: %v", err)
	}
	p.Login = "alice"
	next := p.Run(ctx, alices)
	go c.Send(ctx, "event: sites\ndata: {\"asOf\":\"2026-01-31T12:00:01Z\",\"sites\":[{"+strings.ReplaceAll(paris, "\n", "")+"}]}")
	if _, err := next(); err != nil || c.Last().Authorization != "Bearer alices-new" {
		t.Errorf("streamed as %q: %v", c.Last().Authorization, err)
	}
	// With a token of its own the data source has nobody's channels.
	own := protocoltest.Start(t, c.URL, `{"tenant":"acme"}`, "secret")
	if got, _ := own.Subscribe(alices); got != backend.SubscribeStreamStatusPermissionDenied {
		t.Errorf("a user's channel of another data source: %v", got)
	}
}

// What the editor offers the backend answers.
func TestChoices(t *testing.T) {
	b, err := os.ReadFile("../../src/choices.json")
	if err != nil {
		t.Fatal(err)
	}
	var choices map[string][]string
	if err := json.Unmarshal(b, &choices); err != nil {
		t.Fatal(err)
	}
	_, p := start(t)
	for field, values := range choices {
		for _, v := range values {
			q := map[string]string{"queryType": field, "site": "paris-07", "expr": "up", field: v}
			if field == "queryType" || field == "dimension" {
				q["queryType"], q["health"] = "health", "history"
			}
			q[field] = v
			ask, _ := json.Marshal(q)
			if _, err := p.Query(string(ask)); err != nil {
				t.Errorf("%s: %v", ask, err)
			}
		}
		if _, err := p.Query(`{"queryType":"` + map[bool]string{true: "health", false: field}[field == "dimension" || field == "queryType"] + `","health":"history","` + field + `":"none-of-these"}`); err == nil {
			t.Errorf("%s: what is not offered is answered", field)
		} else if got := err.Error(); field != "queryType" && !strings.Contains(got, strings.Join(values, ", ")) {
			t.Errorf("%s: offered are %v, and the backend has: %s", field, values, got)
		}
	}
}
