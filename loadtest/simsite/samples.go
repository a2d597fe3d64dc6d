package simsite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Series is one of those that a page may have, as text: NAME{LABELS} of TYPE.
type Series struct{ Text, Type string }

// Sample is what a page has of one of its Series.
type Sample struct {
	Series int // place in what Series returned
	Value  float64
	At     int64 // the exporter's own timestamp, milliseconds since 1970; 0: none
}

// Series lists what the page may have at one time or another.
func (p NodePage) Series() []Series {
	var out []Series
	p.each(func(fam *family, l *line) {
		_, kind, _ := strings.Cut(fam.header, "# TYPE "+fam.name+" ")
		kind, _, _ = strings.Cut(kind, "\n")
		out = append(out, Series{strings.TrimSpace(string(p.site.appendName(nil, l))), kind})
	})
	return out
}

// State says whether the exporter serves nothing now, and how long it takes to answer.
func (p NodePage) State() (down bool, slow time.Duration) { return p.site.pageState(p.page, p.node) }

// Samples appends what the handler would serve now if it is up, in its order, as numbers:
// who plays days of hundreds of sites has no time for text.
func (p NodePage) Samples(buf []Sample) (_ []Sample, err error) {
	s := p.site
	f, _ := s.tmpl.frames.Get().(*frame)
	if f == nil {
		f = new(frame)
	}
	defer s.tmpl.frames.Put(f)
	s.snapshot(f)
	wrong := &f.st.pages[p.page*len(f.st.nodes)+int(max(p.node, 0))]
	n := -1
	p.each(func(fam *family, l *line) {
		n++
		if l.when != nil && !l.when(f, l) || slices.Contains(wrong.skip, fam.name) {
			return
		}
		v := l.value(f, l)
		if wrong.zeros != nil {
			v = max(0, v-wrong.zeros[l])
		}
		x := Sample{Series: n, Value: v}
		switch what := wrong.of(fam.name); {
		case what == "", what == "counter", what == "gauge":
		case what == "twice":
			buf, x.Value = append(buf, x), v+1
		case strings.HasPrefix(what, "at+"):
			ahead, _ := time.ParseDuration(what[len("at+"):])
			x.At = int64(1000 * (f.now + ahead.Seconds()))
		default:
			if x.Value, err = strconv.ParseFloat(what, 64); err != nil {
				err = fmt.Errorf("simulated site %s: %s: %w", s.name, fam.name, err)
			}
		}
		buf = append(buf, x)
	})
	return buf, err
}

// each goes through the lines of the page.
func (p NodePage) each(do func(*family, *line)) {
	fams := p.site.tmpl.pages[p.page]
	for i := range fams {
		for j := range fams[i].lines {
			if l := &fams[i].lines[j]; p.node == allNodes || l.ent.node == p.node || l.ent.node < 0 {
				do(&fams[i], l)
			}
		}
	}
}
