package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
)

type logPage struct {
	Hits []struct {
		Site     string `json:"site"`
		Region   string `json:"region"`
		Severity string `json:"severity"`
		Message  string `json:"message"`
	} `json:"hits"`
	Total     int64 `json:"total"`
	Histogram *struct {
		Counts []int64 `json:"counts"`
	} `json:"histogram"`
	MissingRegions []struct {
		Region string `json:"region"`
		Reason string `json:"reason"`
		Late   bool   `json:"late"`
	} `json:"missingRegions"`
	NextCursor string `json:"nextCursor"`
}

func (f *fleet) logs(query string, params ...string) (logPage, error) {
	q := url.Values{"tenant": {tenant}, "query": {query}, "limit": {"1000"}}
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	var p logPage
	return p, f.get("/api/v1/logs/search?"+q.Encode(), &p)
}

func testLogs(t *testing.T, f *fleet) {
	var page logPage
	testkit.Eventually(t, "lines of every connected simulated site are found", func() (err error) {
		seen := map[string]bool{}
		for cursor := ""; ; {
			if page, err = f.logs("", "from", "now-1h", "cursor", cursor); err != nil {
				return err
			}
			for _, h := range page.Hits {
				seen[h.Site] = true
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if len(seen) < sites-2 { // this machine has no Fluent Bit, and one site waits for approval
			return fmt.Errorf("%d sites", len(seen))
		}
		return nil
	})
	page, err := f.logs("", "from", "now-1h")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	if page.Histogram != nil {
		for _, n := range page.Histogram.Counts {
			sum += n
		}
	}
	if sum != page.Total || len(page.MissingRegions) > 0 {
		t.Errorf("total %d, histogram %d, missing %v", page.Total, sum, page.MissingRegions)
	}

	name := greenSites(t, f)[0]
	follow := exec.Command(bin("muster"), "logs", "-f", "--since", "1s", "--site", name, "severity:error AND panic", "-o", "message", "--data-dir", f.dir)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	line := make(chan string, 1)
	go func() {
		s := bufio.NewScanner(out)
		for s.Scan() {
			select {
			case line <- s.Text():
			default:
			}
		}
	}()
	f.muster("demo", "break", name, "crash-loop")
	broke := time.Now()
	took := testkit.EventuallyWithin(t, "a line of the fault is found", 3*time.Minute, func() error {
		p, err := f.logs("severity:error AND panic", "site", name, "from", broke.Add(-5*time.Second).UTC().Format(time.RFC3339))
		if err == nil && len(p.Hits) == 0 {
			err = errors.New("no hit")
		}
		for _, h := range p.Hits {
			if h.Site != name || h.Severity != "error" {
				err = fmt.Errorf("a hit of %s, %s", h.Site, h.Severity)
			}
		}
		return err
	})
	t.Logf("figure: fault → its line found by a search: %s (the site writes one in 4 s, and ships every 2 s)", took.Round(100*time.Millisecond))
	select {
	case l := <-line:
		if !strings.Contains(l, "panic") {
			t.Errorf("followed %q", l)
		}
	case <-time.After(2 * time.Minute):
		t.Error("muster logs -f printed nothing")
	}
	_ = follow.Process.Signal(syscall.SIGINT)
	if err := follow.Wait(); err != nil {
		t.Errorf("muster logs -f ended with %v", err)
	}
	f.muster("demo", "heal", name)
	if p, err := f.logs("", "virtualSite", "europe"); err != nil || len(p.Hits) == 0 {
		t.Errorf("virtual site: %d hits, %v", len(p.Hits), err)
	}

	// A regional that hangs costs a bounded time, and is named.
	pid := f.roles()["regional-virginia"]
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if p, err := f.logs("", "from", "now-1h", "patience", "2s"); err != nil || len(p.Hits) == 0 || len(p.MissingRegions) != 1 || !p.MissingRegions[0].Late {
		t.Errorf("with a regional that hangs, as a page asks: %+v, %v", p.MissingRegions, err)
	}
	t.Logf("figure: what a page shows while one regional hangs: %s", time.Since(began).Round(100*time.Millisecond))
	began = time.Now()
	p, err := f.logs("", "from", "now-1h")
	_ = syscall.Kill(pid, syscall.SIGCONT)
	if err != nil || len(p.Hits) == 0 || len(p.MissingRegions) != 1 || p.MissingRegions[0].Region != "virginia" || p.MissingRegions[0].Reason == "" {
		b, _ := json.Marshal(p.MissingRegions)
		t.Errorf("with a regional that hangs: %d hits, missing %s, %v", len(p.Hits), b, err)
	}
	t.Logf("figure: search while one regional hangs: %s", time.Since(began).Round(100*time.Millisecond))
	testkit.Eventually(t, "the regional answers again", func() error {
		p, err := f.logs("")
		if err == nil && len(p.MissingRegions) > 0 {
			err = fmt.Errorf("missing %v", p.MissingRegions)
		}
		return err
	})
}
