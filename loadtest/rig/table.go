package rig

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// steadyRows are those that come from what the processes used in the steady phase.
func (r *run) steadyRows(p *Phase) {
	regional := p.Use["regional"]
	series := 0.0
	for _, row := range r.res.Rows {
		if row.Name == "series in the regional" {
			series = row.Value
		}
	}
	samples := float64(p.Fleet.Samples)
	per := func(v, n float64) float64 {
		if n == 0 {
			return 0
		}
		return v / n
	}
	r.row("regional RSS, GB", float64(regional.RSSEnd)/1e9, "%.2f")
	r.row("regional RSS, kB a series", per(float64(regional.RSSEnd)/1000, series), "%.2f")
	for _, before := range r.res.Phases {
		if before.Name == PhaseRegistration {
			r.row("the same, above what it had with all sites connected and no series", per(float64(regional.RSSEnd-before.Use["regional"].RSSEnd)/1000, series), "%.2f")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if live, err := r.c.liveHeap(ctx, "regional"); err == nil {
		r.row("regional live heap after a collection, kB a series", per(float64(live)/1000, series), "%.2f")
	}
	for _, role := range append(slices.Clone(r.c.listens.roles), generator) {
		u := p.Use[role]
		r.row(role+", cores", u.CPUSeconds/p.Seconds, "%.3f")
	}
	r.row("regional, µs of CPU a sample, whole process", per(regional.CPUSeconds*1e6, samples), "%.1f")
	r.row("all roles, µs of CPU a sample", per(allCPU(p)*1e6, samples), "%.1f")
	r.row("push p50, ms", p.Fleet.P50, "%.1f")
	r.row("push p99, ms", p.Fleet.P99, "%.0f")
	r.row("bytes a sample on the wire", per(float64(p.Fleet.Bytes), samples), "%.1f")
	r.row("forward queue's age, the most seen, s", p.ForwardAge, "%.1f")
	r.row("aggregator (Cortex) RSS, GB", float64(p.Use["aggregator"].RSSEnd)/1e9, "%.2f")
	for _, role := range append([]string{"control", "health", "alerting", "console"}, generator) {
		r.row(role+" RSS, MB", float64(p.Use[role].RSSEnd)/1e6, "%.0f")
	}
	for _, role := range r.c.listens.roles {
		u := p.Use[role]
		r.row(role+": growth of RSS over the steady phase, MB", float64(u.RSSEnd-u.RSSBegin)/1e6, "%+.0f")
	}
	r.row("regional, bytes written a sample", per(float64(regional.Written), samples), "%.1f")
	r.row("aggregator, bytes written a sample", per(float64(p.Use["aggregator"].Written), samples), "%.1f")
	all := samples
	for _, before := range r.res.Phases {
		if before.Name != p.Name {
			all += float64(before.Fleet.Samples)
		}
	}
	r.row("regional, bytes on disk a sample since the start", per(float64(diskUse(filepath.Join(r.c.data(), "regional-"+regionalName))), all), "%.1f")
	r.row("aggregator, bytes on disk a sample since the start", per(float64(diskUse(filepath.Join(r.c.data(), "aggregator"))), all), "%.1f")
}

func allCPU(p *Phase) float64 {
	n := 0.0
	for role, use := range p.Use {
		if role != generator {
			n += use.CPUSeconds
		}
	}
	return n
}

// phaseRows are those that each phase has.
func (r *run) phaseRows() {
	for _, p := range r.res.Phases {
		f := p.Fleet
		r.row(p.Name+": pushes taken / 429 / 5xx / timed out / no connection", float64(f.Pushes), "%d / %d / %d / %d / %d", f.Pushes, f.TooMany, f.Unavailable, f.Timeouts, f.Failed)
		if f.Refused > 0 {
			r.row(p.Name+": pushes refused for good", float64(f.Refused), "%.0f")
		}
		if p.Name != PhaseSteady && f.Pushes > 0 {
			r.row(p.Name+": push p50 / p99, ms", f.P99, "%.1f / %.0f", f.P50, f.P99)
		}
		r.row(p.Name+": cores of regional / control / health / aggregator", p.Use["regional"].CPUSeconds/p.Seconds, "%.2f / %.2f / %.2f / %.2f",
			p.Use["regional"].CPUSeconds/p.Seconds, p.Use["control"].CPUSeconds/p.Seconds, p.Use["health"].CPUSeconds/p.Seconds, p.Use["aggregator"].CPUSeconds/p.Seconds)
		r.row(p.Name+": regional RSS, the most seen, GB", float64(p.Use["regional"].RSSMax)/1e9, "%.2f")
	}
}

// Table writes the result for people.
func (res *Result) Table(w io.Writer) {
	fmt.Fprintf(w, "%d sites × %d series, %s, commit %s, %d cores, load of the machine as the phases began: %s\n%s\n\n",
		res.Sites, res.Series, res.Date.Format("2006-01-02 15:04 MST"), res.Commit, res.Cores, strings.Join(res.Load, " "), res.Command)
	tw := tabwriter.NewWriter(w, 0, 4, 3, ' ', 0)
	for _, row := range res.Rows {
		fmt.Fprintf(tw, "%s\t%s\n", row.Name, row.Text)
	}
	_ = tw.Flush()
	for _, p := range res.Phases {
		if p.Name == PhaseCold || p.Name == PhaseRestart {
			graph(w, p.Name, p.Course, res.Sites)
		}
	}
	for _, p := range res.Phases {
		if p.Error != "" {
			fmt.Fprintf(w, "\n%s\n", p.Error)
		}
	}
}
