package sites

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"muster.dev/muster/health"
	"muster.dev/muster/health/engine"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// usage is a fleet whose sites use 1, 2, … percent of their CPU; every fifth's is not known,
// every third has no place.
func usage(t testing.TB, n int) *engine.View {
	t.Helper()
	model, err := health.NewModel(health.Options{Weights: [4]float64{1, 1, 1, 1}, Signals: []health.Signal{
		{Name: health.SignalUplink, Dimension: "connectivity", Query: "up", Good: 1, Weight: 1},
		{Name: "cpu-used", Dimension: "performance", Query: "cpu", Good: 60, Bad: 90, Weight: 1},
		{Name: "memory-available", Dimension: "performance", Query: "memory", Good: 30, Bad: 5, Weight: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for i := range n {
		entries = append(entries, entry{fmt.Sprintf("%s/s%03d", []string{"a", "b"}[i%2], i), float64(i % 101), func(s *inventory.Site) {
			s.Versions = map[string]string{"agent": fmt.Sprintf("1.%d", i%20)}
			if i%3 > 0 {
				s.Place = &inventory.Place{Latitude: float64(i%90) + 0.123456, Longitude: -float64(i % 180)}
			}
		}})
	}
	v := view(entries...)
	for _, s := range v.Sites {
		i := 0
		if _, err := fmt.Sscanf(s.ID.Name, "s%d", &i); err != nil {
			t.Fatal(err)
		}
		s.State.Model = model
		s.State.Signals = []health.SignalState{{}, {Value: float64(i), Known: i%5 > 0}, {Value: float64(i) / 3, Known: true, Garbage: i == 7}}
	}
	return v
}

func ask[T any](t *testing.T, get func(path string, params ...string) (int, string), path string, params ...string) *T {
	t.Helper()
	out := new(T)
	code, body := get(path, params...)
	if err := json.Unmarshal([]byte(body), out); code != http.StatusOK || err != nil {
		t.Fatalf("%s %v: %d %s %v", path, params, code, body, err)
	}
	return out
}

// TestMapAndDistributionsAreOfTheInventory: whatever is asked, they count the sites that the table lists.
func TestMapAndDistributionsAreOfTheInventory(t *testing.T) {
	srv := serve(t, usage(t, 101), nil)
	for _, tenants := range []string{"*", "a"} {
		asked := func(path string, params ...string) (int, string) { return get(t, srv, path, tenants, params...) }
		for _, q := range []string{"", "cpuUsed>30", "colour=red OR version=1.3", "memoryUsed>=75 name=s0*", "measured.cpu-used<50", "cpuUsed=unknown"} {
			list := page(t, srv, tenants, "q", q, "limit", "10000")
			placed := page(t, srv, tenants, "q", "("+or(q, "name=*")+") onMap=true", "sort", "tenant,name", "limit", "10000")
			m := ask[wire.SiteMap](t, asked, wire.SiteMapPath, "q", q, "by", "cpuUsed")
			if fmt.Sprint(m.Counts) != fmt.Sprint(list.Counts) || m.Total != list.Total || m.Unplaced != list.Total-placed.Total {
				t.Errorf("%s: the map has %d sites %v and %d without a place, the table %d %v and %d", q, m.Total, m.Counts, m.Unplaced, list.Total, list.Counts, list.Total-placed.Total)
			}
			var on []string
			for i, n := range m.Names {
				on = append(on, m.Tenants[m.Tenant[i]]+"/"+n)
			}
			if got := strings.Join(on, " "); got != names(placed) || len(m.Values) != len(on) || len(m.Colour) != len(on) {
				t.Errorf("%s: the map has %s\nthe table %s", q, got, names(placed))
			}
			of := "cpuUsed,memoryUsed,diskUsed,score,alerts,measured.cpu-used,measured.memory-available"
			for _, d := range ask[wire.SiteDistributions](t, asked, wire.SiteDistributionsPath, "q", q, "of", of).Distributions {
				known, sum := 0, 0
				for _, b := range d.Bins {
					if got := page(t, srv, tenants, "q", "("+or(q, "name=*")+") "+b.Query, "limit", "0").Total; got != b.Sites {
						t.Errorf("%s: %s has %d sites in the table, %d in the bin", q, b.Query, got, b.Sites)
					}
					sum += b.Sites
				}
				known = page(t, srv, tenants, "q", "("+or(q, "name=*")+") "+d.Column+"!=unknown", "limit", "0").Total
				if sum != d.Known || d.Known != known || d.Known+d.Unknown != list.Total {
					t.Errorf("%s: of %s %d sites are in bins, %d known and %d not; the table knows %d of %d", q, d.Column, sum, d.Known, d.Unknown, known, list.Total)
				}
			}
		}
	}
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func TestMapByColumn(t *testing.T) {
	srv := serve(t, usage(t, 60), nil)
	asked := func(path string, params ...string) (int, string) { return get(t, srv, path, "*", params...) }
	m := ask[wire.SiteMap](t, asked, wire.SiteMapPath, "q", "name in (s001, s004, s005)", "by", "memoryUsed")
	if m.Names[0] != "s004" || m.Latitude[0] != 4.1235 || m.Longitude[0] != -4 || *m.Score[0] != 4 || m.Colour != "rrr" || *m.Values[0] != 98.7 {
		t.Errorf("%+v", m)
	}
	if m := ask[wire.SiteMap](t, asked, wire.SiteMapPath, "q", "name=s005", "by", "cpuUsed"); m.Values[0] != nil {
		t.Errorf("what is not known is %v", *m.Values[0])
	}
	m = ask[wire.SiteMap](t, asked, wire.SiteMapPath, "by", "version")
	if len(m.Categories) != wire.MaxMapCategories || m.Kind != "version" || m.Values != nil || len(m.Category) != len(m.Names) {
		t.Errorf("%d categories of %s", len(m.Categories), m.Kind)
	}
	other := 0
	for i, c := range m.Category {
		if c < 0 {
			other++
		} else if got := page(t, srv, "*", "q", "name="+m.Names[i], "columns", "version").Sites[0]["version"]; got != m.Categories[c] {
			t.Errorf("%s has %v, the map says %s", m.Names[i], got, m.Categories[c])
		}
	}
	if other == 0 || other >= len(m.Names) {
		t.Errorf("%d of %d have another version", other, len(m.Names))
	}
	for _, x := range []struct{ path, name, value, want string }{
		{wire.SiteMapPath, "q", "score<", "q: "},
		{wire.SiteMapPath, "by", "label", "by: label needs a key"},
		{wire.SiteMapPath, "by", "cpuUsed,diskUsed", "by: 2 columns, want at most 1"},
		{wire.SiteDistributionsPath, "of", "cpuUsed,name", "of: name is no number"},
	} {
		if code, body := asked(x.path, x.name, x.value); code != http.StatusBadRequest || !strings.Contains(body, x.want) {
			t.Errorf("%s=%s: %d %s", x.name, x.value, code, body)
		}
	}
}

func TestDistribution(t *testing.T) {
	srv := serve(t, usage(t, 101), nil)
	asked := func(path string, params ...string) (int, string) { return get(t, srv, path, "*", params...) }
	got := ask[wire.SiteDistributions](t, asked, wire.SiteDistributionsPath, "q", "cpuUsed>0")
	cpu := got.Distributions[0]
	if cpu.Column != "cpuUsed" || cpu.Known != 80 || *cpu.Mean != 50 || *cpu.Median != 49 || *cpu.Least != 1 || *cpu.Most != 99 || *cpu.P90 != 89 || len(cpu.Bins) != 20 || cpu.Bins[19].Query != "cpuUsed>=95" {
		t.Errorf("%+v", cpu)
	}
	if disk := got.Distributions[2]; disk.Known != 0 || disk.Unknown != 80 || disk.Mean != nil || len(disk.Bins) != 0 {
		t.Errorf("of what nobody knows: %+v", disk)
	}
}
