package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"muster.dev/muster/internal/wire"
)

type triple struct {
	tenant, site string
	value        float64
}

func decodeAll(data []byte) (out []triple, err error) {
	err = decodeVector(data, func(tenant, site []byte, v float64) error {
		out = append(out, triple{string(tenant), string(site), v})
		return nil
	})
	return out, err
}

func TestDecodeVector(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     string // triples, or "error: part of the text"
	}{
		{"empty", `{"status":"success","data":{"resultType":"vector","result":[]}}`, ``},
		{"one", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"s","tenant":"t"},"value":[1700000000.123,"0.5"]}]}}`, `t/s=0.5`},
		{"spaces and other keys", "\n{ \"status\" : \"success\" , \"warnings\":[\"w\"], \"infos\":[{}], \"data\" : { \"x\":null, \"resultType\" : \"vector\" , \"result\" : [ { \"metric\" : { \"a\":\"b\", \"tenant\":\"t\",\"site\":\"s\" } , \"value\" : [ 1 , \"1e3\" ] } , {\"value\":[1,\"2\"],\"metric\":{}} ] } }\n", `t/s=1000 /=2`},
		{"other order", `{"data":{"result":[{"metric":{"site":"s","tenant":"t"},"value":[1,"7"]}],"resultType":"vector"},"status":"success"}`, `t/s=7`},
		{"special values", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"a","tenant":"t"},"value":[1,"NaN"]},{"metric":{"site":"b","tenant":"t"},"value":[1,"+Inf"]},{"metric":{"site":"c","tenant":"t"},"value":[1,"-Inf"]}]}}`, `t/a=NaN t/b=+Inf t/c=-Inf`},
		{"escapes", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"a\"é\u00e9","tenant":"t\\"},"value":[1,"1"]}]}}`, `t\/a"éé=1`},
		{"failed query", `{"status":"error","errorType":"execution","error":"found duplicate series"}`, `error: execution: found duplicate series`},
		{"scalar", `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, `error: returns a scalar`},
		{"matrix", `{"status":"success","data":{"resultType":"matrix","result":[]}}`, `error: returns a matrix`},
		{"histogram", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{}]}]}}`, `error: returns histograms`},
		{"no value", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`, `error: without a value`},
		{"no number", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}`, `error: no number`},
		{"bare number", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,1]}]}}`, `error: want '"'`},
		{"three parts", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1",2]}]}}`, `error: want ']'`},
		{"one part", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}}`, `error: want ','`},
		{"trailing comma", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]},]}}`, `error: comma`},
		{"garbage after", `{"status":"success","data":{"resultType":"vector","result":[]}}x`, `error: after the end`},
		{"truncated", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"ten`, `error: without an end`},
		{"nothing", ``, `error: want '{'`},
		{"html", `<html>502 Bad Gateway</html>`, `error: want '{'`},
		{"no status", `{}`, `error: status ""`},
		{"no result", `{"status":"success","data":{}}`, `error: no result`},
		{"deep", `{"status":"success","x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, `error: too deeply`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeAll([]byte(c.in))
			if want, bad := strings.CutPrefix(c.want, "error: "); bad {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v, want one with %q", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, x := range got {
				parts = append(parts, fmt.Sprintf("%s/%s=%v", x.tenant, x.site, x.value))
			}
			if s := strings.Join(parts, " "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
	var q *queryError
	if _, err := decodeAll([]byte(`{"status":"error","errorType":"timeout","error":"x"}`)); !errors.As(err, &q) || q.kind != "timeout" {
		t.Errorf("a failed query isn't a queryError: %v", err)
	}
}

// reference is what encoding/json makes of an answer.
func reference(data []byte) ([]triple, error) {
	var r struct {
		Status string
		Data   struct {
			ResultType string
			Result     []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	var out []triple
	for _, s := range r.Data.Result {
		if len(s.Value) != 2 {
			return nil, errors.New("value")
		}
		text, ok := s.Value[1].(string)
		if !ok {
			return nil, errors.New("value")
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(v, 0) {
			return nil, err
		}
		out = append(out, triple{s.Metric["tenant"], s.Metric["site"], v})
	}
	return out, nil
}

// FuzzDecodeVector: it never panics, accepts nothing that isn't JSON, and reads
// what encoding/json reads.
func FuzzDecodeVector(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"s","tenant":"t"},"value":[1700000000.123,"0.5"]}]}}`))
	f.Add([]byte(`{"data":{"result":[{"metric":{"site":"s","tenant":"t"},"value":[1,"7"]}],"resultType":"vector"},"status":"success"}`))
	f.Add([]byte(`{"status":"error","errorType":"execution","error":"x\u00e9"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeAll(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted what is no JSON: %q", data)
		}
		want, err := reference(data)
		if err != nil || len(got) == 0 {
			return // repeated or differently cased keys, which encoding/json folds
		}
		if len(got) != len(want) {
			return // the same
		}
		for i := range want {
			if strings.Count(string(data), `"tenant"`) > len(want) || strings.Count(string(data), `"site"`) > len(want) || strings.Count(string(data), "value") > len(want) || strings.Contains(strings.ToLower(string(data)), `\u`) || strings.Contains(string(data), "metric\"") && strings.Count(strings.ToLower(string(data)), "metric") > len(want) || strings.Count(strings.ToLower(string(data)), "value") > len(want) {
				return
			}
			if got[i].tenant != want[i].tenant || got[i].site != want[i].site || got[i].value != want[i].value && !(math.IsNaN(got[i].value) && math.IsNaN(want[i].value)) {
				t.Fatalf("series %d: %+v, encoding/json says %+v", i, got[i], want[i])
			}
		}
	})
}

// oracle expects these heads, one after the other, and after the last the first again.
type oracle struct {
	heads [][]byte
	names []triple
	at    int
	out   *[]triple
	hits  int
}

func (o *oracle) expect(tenant, site string) {
	o.heads, o.names = append(o.heads, appendHead(nil, tenant, site)), append(o.names, triple{tenant: tenant, site: site})
}

func (o *oracle) head() []byte {
	o.at = (o.at + 1) % len(o.heads)
	return o.heads[o.at]
}

func (o *oracle) briefHead() []byte {
	o.at = (o.at + 1) % len(o.heads)
	return wire.AppendSeriesHead(nil, o.names[o.at].tenant, o.names[o.at].site)
}

func (o *oracle) came(v float64) error {
	o.hits++
	x := o.names[o.at]
	x.value = v
	*o.out = append(*o.out, x)
	return nil
}

func decodeAllExpected(data []byte) (out []triple, hits int, err error) {
	o := &oracle{out: &out, at: -1}
	for _, site := range []string{"s", "a", "b"} {
		o.expect("t", site)
	}
	err = decodeExpected(data, o, func(tenant, site []byte, v float64) error {
		out = append(out, triple{string(tenant), string(site), v})
		return nil
	})
	return out, o.hits, err
}

func TestDecodeExpected(t *testing.T) {
	series := func(site, rest string) string {
		return `{"metric":{"site":"` + site + `","tenant":"t"},"value":[` + rest + `}`
	}
	wrap := func(s ...string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(s, ",") + `]}}`
	}
	for _, c := range []struct {
		name, in string
		want     string
		hits     int
	}{
		{"as expected, but for the first, whose time is news", wrap(series("s", `17.5,"1"]`), series("a", `17.5,"-2.5e3"]`), series("b", `17.5,"1234567890123"]`)), "t/s=1 t/a=-2500 t/b=1234567890123", 2},
		{"others between", wrap(series("s", `1,"1"]`), series("x", `1,"2"]`), series("b", `1,"NaN"]`)), "t/s=1 t/x=2 t/b=NaN", 1},
		{"another time", wrap(series("s", `1,"1"]`), series("a", `12,"2"]`), series("b", `12,"+Inf"]`)), "t/s=1 t/a=2 t/b=+Inf", 1},
		{"space", wrap(series("s", `1,"1"]`), series("a", `1, "2" ]`)), "t/s=1 t/a=2", 0},
		{"no number", wrap(series("s", `1,"1"]`), series("a", `1,""]`)), "error: no number", 0},
		{"a digit of a longer number", wrap(series("s", `1,"1"]`), series("a", `1,"1]`)), "error: ", 0},
		{"a histogram after the value", wrap(series("s", `1,"1"]`), series("a", `1,"1"],"histogram":[]`)), "error: histograms", 0},
		{"cut off", wrap(series("s", `1,"1"]`), series("a", `1,"1"]`))[:150], "error: ", 0},
	} {
		got, hits, err := decodeAllExpected([]byte(c.in))
		if want, bad := strings.CutPrefix(c.want, "error: "); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, want)
			}
			continue
		}
		var parts []string
		for _, x := range got {
			parts = append(parts, fmt.Sprintf("%s/%s=%.17g", x.tenant, x.site, x.value))
		}
		if s := strings.Join(parts, " "); err != nil || s != c.want || hits != c.hits {
			t.Errorf("%s: %s, %d expected ones, %v; want %s, %d", c.name, s, hits, err, c.want, c.hits)
		}
	}
	for _, name := range []string{`a"b`, `a\b`, "é", "a\n"} {
		if got := appendHead(nil, "t", name); len(got) != 0 {
			t.Errorf("a head of %q: %s", name, got)
		}
	}
}

// nothing expects nothing.
type nothing struct{}

func (nothing) head() []byte       { return nil }
func (nothing) briefHead() []byte  { return nil }
func (nothing) came(float64) error { panic("what was not expected came") }

// TestDecodeBrief: an answer in few bytes says what the same one says in JSON.
func TestDecodeBrief(t *testing.T) {
	in := []triple{{"t", "s", 1}, {"t", "a", -2.5e3}, {"t", "x", math.Inf(1)}, {"u", "b", 0.1}, {"t", "b", 7}, {"t", "s", 8}}
	b := wire.AppendVector(nil, len(in))
	for _, x := range in {
		b = wire.AppendSeries(b, x.tenant, x.site, x.value)
	}
	got, hits, err := decodeAllExpected(b)
	if err != nil || !slices.Equal(got, in) || hits != 2 {
		t.Errorf("%v with %d expected ones, %v; want %v with 2", got, hits, err, in)
	}
	if _, _, err := decodeAllExpected(b[:len(b)-1]); err == nil {
		t.Error("half of an answer is taken for all of it")
	}
	refused := errors.New("refused")
	if err := decodeExpected(b, nothing{}, func(_, _ []byte, _ float64) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("%v, want that the series is refused", err)
	}
}

// FuzzDecodeExpected: whatever is expected, the answer says the same.
func FuzzDecodeExpected(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"s","tenant":"t"},"value":[1700000000.123,"0.5"]},{"metric":{"site":"a","tenant":"t"},"value":[1700000000.123,"12"]}]}}`))
	f.Add([]byte(`{"data":{"result":[{"metric":{"site":"s","tenant":"t"},"value":[1,"7"]}],"resultType":"vector"},"status":"success"}`))
	f.Add(wire.AppendSeries(wire.AppendSeries(wire.AppendVector(nil, 2), "t", "s", 1), "t", "a", 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		want, err := decodeAll(data)
		if wire.IsVector(data) {
			want = nil
			err = decodeExpected(data, nothing{}, func(tenant, site []byte, v float64) error {
				want = append(want, triple{string(tenant), string(site), v})
				return nil
			})
		}
		got, _, err2 := decodeAllExpected(data)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, and with expectations %v", err, err2)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestWhatIsCompressed: the live view, which an overloaded regional writes the sooner the smaller
// it is; the answers of queries are not.
func TestWhatIsCompressed(t *testing.T) {
	asked := map[string]string{}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(compress(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path] = r.Header.Get("Accept-Encoding")
		_, _ = w.Write(wire.LiveView{Regional: "one"}.Append(nil, slices.Values([]wire.SiteLive{{Site: "paris"}})))
	})))
	defer srv.Close()
	e := &Engine{opts: Options{Client: srv.Client(), MaxResponseBytes: 1 << 10}}
	v, err := e.askLive(t.Context(), Regional{Name: "one", URL: srv.URL}, time.Minute)
	if err != nil || len(v.Sites) != 1 || v.Sites[0].Site != "paris" {
		t.Errorf("%+v, %v", v, err)
	}
	if err := e.post(t.Context(), srv.URL+"/query", "", true, url.Values{}, func([]byte) error { return nil }); err != nil {
		t.Error(err)
	}
	if want := map[string]string{wire.LivePath: "gzip", "/query": "identity"}; !maps.Equal(asked, want) {
		t.Errorf("accepted %v, want %v", asked, want)
	}
	e.opts.MaxResponseBytes = 50
	if _, err := e.askLive(t.Context(), Regional{Name: "one", URL: srv.URL}, time.Minute); !errors.Is(err, errTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}
