package fleetlogs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster.dev/muster/aggregator/logs"
	"muster.dev/muster/cmd/internal/config"
)

// Of regionals on the same Elasticsearch and prefix one is asked; clusters that are
// joined are named by whoever is asked for them.
func TestRegionals(t *testing.T) {
	regional := func(name, prefix string, joined map[string]string, urls ...string) config.Regional {
		return config.Regional{Name: name, QueryListen: name + ":9120", Logs: config.Logs{Elasticsearch: config.Elasticsearch{URLs: urls, Prefix: prefix, RemoteClusters: joined}}}
	}
	got := regionals(config.Config{Regionals: []config.Regional{
		regional("one", "logs", map[string]string{"asia": "four"}, "http://x:9200", "http://y:9200"),
		regional("two", "logs", nil, "http://y:9200", "http://x:9200"),
		regional("three", "others", nil, "http://x:9200", "http://y:9200"),
		regional("four", "logs", map[string]string{"eu": "two"}, "http://z:9200"),
		regional("five", "logs", nil),
		regional("six", "logs", nil),
	}})
	want := []logs.Regional{
		{Name: "one", URL: "https://one:9120", JoinedTo: []string{"four"}, Spares: []logs.Spare{{Name: "two", URL: "https://two:9120"}}},
		{Name: "three", URL: "https://three:9120"},
		{Name: "four", URL: "https://four:9120", JoinedTo: []string{"one"}},
		{Name: "five", URL: "https://five:9120"},
		{Name: "six", URL: "https://six:9120"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
