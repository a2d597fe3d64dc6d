package elasticsearch

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func do(t *testing.T, method, url, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s: %s", method, url, resp.Status, data)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, url, err, data)
	}
	return out
}

func hits(t *testing.T, url string) float64 {
	t.Helper()
	return do(t, "GET", url, "")["hits"].(map[string]any)["total"].(map[string]any)["value"].(float64)
}

func TestSharedNodeIsOne(t *testing.T) {
	a, b := Start(t, Options{}), Start(t, Options{})
	if a != b {
		t.Error("two nodes in one test binary")
	}
	do(t, "PUT", a.URL+"/shared-test/_doc/1?refresh=true", `{"message":"hello"}`)
	if n := hits(t, a.URL+"/shared-test/_search?q=message:hello"); n != 1 {
		t.Errorf("%v hits, want 1", n)
	}
}

// Two clusters, one query; then one of them dies and the other still answers.
func TestCrossClusterSearch(t *testing.T) {
	far := Start(t, Options{Name: "far"})
	near := Start(t, Options{Name: "near", Remotes: map[string]string{"far": far.Transport}})
	do(t, "PUT", far.URL+"/logs/_doc/1?refresh=true", `{"message":"from far"}`)
	do(t, "PUT", near.URL+"/logs/_doc/1?refresh=true", `{"message":"from near"}`)

	both := near.URL + "/logs,far:logs/_search?q=message:from"
	if n := hits(t, both); n != 2 {
		t.Fatalf("%v hits over both clusters, want 2", n)
	}
	far.Kill(t)
	got := do(t, "GET", both, "")
	clusters := got["_clusters"].(map[string]any)
	if n := hits(t, both); n != 1 || clusters["skipped"].(float64) != 1 {
		t.Errorf("with far dead: %v hits, clusters %v; want 1 hit and 1 skipped", n, clusters)
	}
	urlBefore := far.URL
	far.Restart(t)
	if far.URL != urlBefore {
		t.Errorf("restarted at %s, was at %s", far.URL, urlBefore)
	}
	if n := hits(t, far.URL+"/logs/_search"); n != 1 {
		t.Errorf("%v documents after kill and restart, want 1", n)
	}
}

func TestOwnNodeLeavesNothingBehind(t *testing.T) {
	var home string
	var pid int
	t.Run("life", func(t *testing.T) {
		n := Start(t, Options{Private: true})
		home, pid = n.home, n.proc.Pid
	})
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("home is still there: %v", err)
	}
	if _, err := os.Stat("/proc/self"); err == nil {
		if data, err := os.ReadFile("/proc/" + itoa(pid) + "/cmdline"); err == nil && strings.Contains(string(data), home) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }
