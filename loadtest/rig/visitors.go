package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pages are what visitors ask the console for, as its pages do; SITE is one of the sites.
var pages = []string{
	"/", "/api/v1/health/sites?limit=100", "/api/v1/sites?limit=100&sort=score", "/api/v1/sites?limit=100&q=score%3C90", "/api/v1/sites?limit=0&group=region",
	"/api/v1/health/sites/SITE", "/api/v1/health/sites/SITE/explain", "/api/v1/sites/SITE", "/api/v1/site-map", "/api/v1/site-distributions", "/api/v1/links",
	"/api/v1/health/virtualsites", "/api/v1/cost", "/api/v1/rollouts", "/api/v1/registrations",
	"/api/v1/timeline", "/api/v1/alerts", "/api/v1/alerts/groups", "/api/v1/alerts/state", "/api/v1/silences",
	"/api/v1/logs/search?from=now-15m&query=severity%3Aerror", "/api/v1/logs/search?from=now-1h&query=",
	"/api/v1/metrics/query?query=sum%20by%20(site)%20(rate(node_cpu_seconds_total%5B5m%5D))", "/api/v1/metrics/query?query=topk(5%2C%20up)",
}

// streams are what visitors open, and leave after some seconds.
var streams = []string{"/api/v1/health/stream?brief=true", "/api/v1/logs/tail?query="}

// visits is what visitors came to.
type visits struct {
	mu              sync.Mutex
	answers, failed int
	first           error // that went wrong
}

func (v *visits) count(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		v.answers++
		return
	}
	if v.failed++; v.first == nil {
		v.first = err
	}
}

// visit has so many people look at the console until ctx ends: each asks for something else
// every half second, and every third of them opens streams and leaves them again.
func (r *run) visit(ctx context.Context, people int) (*visits, error) {
	v := &visits{}
	if people == 0 {
		return v, nil
	}
	b, err := r.console(ctx, "/api/v1/health/sites?limit=100&tenant="+tenant)
	if err != nil {
		return v, err
	}
	var list struct {
		Sites []struct {
			Name string `json:"name"`
		} `json:"sites"`
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Sites) == 0 {
		return v, fmt.Errorf("list of sites: %d of them, %w", len(list.Sites), err)
	}
	ask := func(paths []string, look func(context.Context, string) error) {
		path := strings.Replace(paths[rand.IntN(len(paths))], "SITE", list.Sites[rand.IntN(len(list.Sites))].Name, 1)
		if strings.Contains(path, "?") {
			path += "&tenant=" + tenant
		} else {
			path += "?tenant=" + tenant
		}
		if err := look(ctx, path); ctx.Err() == nil {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			v.count(err)
		}
	}
	var wg sync.WaitGroup
	for i := range people {
		wg.Go(func() {
			for sleepFor(ctx, time.Duration(200+rand.IntN(600))*time.Millisecond) == nil {
				if i%3 == 2 {
					ask(streams, r.leaveStream)
				} else {
					ask(pages, func(ctx context.Context, path string) error { _, err := r.console(ctx, path); return err })
				}
			}
		})
	}
	wg.Wait()
	return v, nil
}

// leaveStream reads a stream for 3 to 25 seconds.
func (r *run) leaveStream(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(3000+rand.IntN(22000))*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.c.console()+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("stream of the console: %s", resp.Status)
	}
	if _, err = io.Copy(io.Discard, resp.Body); ctx.Err() != nil {
		return nil
	}
	return err
}
