package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"muster.dev/muster/internal/obs"
)

// OpsListen is where the simulated fleet serves its metrics and takes faults.
const OpsListen = "127.0.0.1:9105"

// faultTarget is a simulated site, as far as breaking it goes.
type faultTarget interface {
	Break(fault string) error
	// Set is that of simsite.Site, for what no fault of the catalogue does.
	Set(object, property, value string) error
	Heal()
	Faults() []string
}

// faultList is what GET /faults answers.
type faultList struct {
	Kinds  map[string]string   `json:"kinds"`  // fault → what it does
	Broken map[string][]string `json:"broken"` // site → its faults
}

// serveFaults adds the fault API to the fleet's mux: GET /faults,
// POST /faults/{site}/{fault}, PUT /faults/{site}?object=…&property=…&value=…, DELETE /faults/{site}.
func serveFaults(mux obs.Routes, kinds map[string]string, target func(site string) (faultTarget, error), all func() map[string][]string) {
	fail := func(w http.ResponseWriter, err error) {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(faultList{Kinds: kinds, Broken: all()})
	})
	change := func(pattern string, do func(t faultTarget, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			t, err := target(r.PathValue("site"))
			if err == nil {
				err = do(t, r)
			}
			if err != nil {
				fail(w, err)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	change("POST /faults/{site}/{fault}", func(t faultTarget, r *http.Request) error { return t.Break(r.PathValue("fault")) })
	change("PUT /faults/{site}", func(t faultTarget, r *http.Request) error {
		return t.Set(r.FormValue("object"), r.FormValue("property"), r.FormValue("value"))
	})
	change("DELETE /faults/{site}", func(t faultTarget, _ *http.Request) error { t.Heal(); return nil })
}

// FaultClient is the user's side of the fault API.
type FaultClient struct {
	base string
	http *http.Client
}

// NewFaultClient talks to the fleet of the demo that runs on this machine.
func NewFaultClient() *FaultClient {
	return &FaultClient{base: "http://" + OpsListen, http: &http.Client{Timeout: 5 * time.Second}}
}

func (c *FaultClient) call(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("no demo answers on %s; start one with `muster demo`", OpsListen)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}

// Break breaks a site, and says what to expect.
func (c *FaultClient) Break(ctx context.Context, w io.Writer, site, fault string) error {
	if _, err := c.call(ctx, http.MethodPost, "/faults/"+url.PathEscape(site)+"/"+url.PathEscape(fault)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s. Watch the map, or: muster describe site %s\n", site, fault, site)
	return err
}

// Heal heals a site.
func (c *FaultClient) Heal(ctx context.Context, w io.Writer, site string) error {
	if _, err := c.call(ctx, http.MethodDelete, "/faults/"+url.PathEscape(site)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: healed\n", site)
	return err
}

// List prints the kinds of faults, and the sites that are broken now.
func (c *FaultClient) List(ctx context.Context, w io.Writer) error {
	b, err := c.call(ctx, http.MethodGet, "/faults")
	if err != nil {
		return err
	}
	var l faultList
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("answer of the demo: %w", err)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "FAULT\tWHAT IT DOES")
	for _, k := range slices.Sorted(maps.Keys(l.Kinds)) {
		fmt.Fprintf(tw, "%s\t%s\n", k, l.Kinds[k])
	}
	fmt.Fprintln(tw, "\nBROKEN SITE\tFAULTS")
	for _, s := range slices.Sorted(maps.Keys(l.Broken)) {
		fmt.Fprintf(tw, "%s\t%s\n", s, strings.Join(l.Broken[s], ", "))
	}
	return tw.Flush()
}
