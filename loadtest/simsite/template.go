package simsite

import (
	"embed"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

//go:embed exporters/*.txt
var exporterFiles embed.FS

// page is one exporter's metrics page.
type page struct {
	name string
	// perNode: the exporter runs on every node, and the label node is added.
	perNode bool
	// dies: the page loses a node whose kubelet does.
	dies bool
}

var pages = []page{
	{name: "node-exporter", perNode: true},
	{name: "kube-state-metrics"},
	{name: "kubelet", perNode: true, dies: true},
	{name: "cadvisor", perNode: true, dies: true},
	{name: "cilium-agent", perNode: true},
}

// Templates holds the text that sites of one shape have in common. Safe for
// concurrent use.
type Templates struct {
	mu   sync.Mutex
	made map[[4]int]*template
}

// NewTemplates returns an empty store, to be shared by the sites of a process.
func NewTemplates() *Templates { return &Templates{made: map[[4]int]*template{}} }

func (t *Templates) get(nodes, pods, series, spares int, families func(string) bool) (*template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := [4]int{nodes, pods, series, spares}
	if made := t.made[key]; made != nil {
		return made, nil
	}
	made, err := fit(nodes, pods, series, spares, families)
	if err == nil {
		t.made[key] = made
	}
	return made, err
}

// fit finds the shape that has about the wanted number of series.
func fit(nodes, pods, series, spares int, families func(string) bool) (*template, error) {
	if nodes == 0 {
		nodes = max(1, (series+1)/1650)
		if nodes > 6 {
			nodes = 6 + (series-10000)/4000 // larger sites have more pods a node
		}
	}
	measure := func(pods int) (int, error) {
		s, err := newShape(nodes, pods, 0, 0)
		if err != nil {
			return 0, err
		}
		return count(s)
	}
	if pods == 0 {
		pods = minPods(nodes)
		base, err := measure(pods)
		if err != nil {
			return nil, err
		}
		more, err := measure(pods + 12)
		if err != nil {
			return nil, err
		}
		if room := series - base; room > 0 {
			pods += int(float64(room) * 0.97 * 12 / float64(more-base))
		}
	}
	base, err := measure(pods)
	if err != nil {
		return nil, err
	}
	if float64(base) > 1.05*float64(series) {
		return nil, fmt.Errorf("series: %d: %d nodes with %d pods have at least %d", series, nodes, pods, base)
	}
	s, err := newShape(nodes, pods, max(0, series-base), spares)
	if err != nil {
		return nil, err
	}
	return compile(s, families)
}

func count(s *shape) (int, error) {
	t, err := compile(s, nil)
	if err != nil {
		return 0, err
	}
	return t.series, nil
}

// template is the pages of one shape, with holes for what differs between sites
// and moments.
type template struct {
	shape    *shape
	families func(string) bool // nil: all
	pages    [][]family
	series   int
	buffers  buffers
	frames   sync.Pool
}

type family struct {
	name   string
	header string // # HELP and # TYPE
	lines  []line
}

// line is one series.
type line struct {
	segs  []seg
	value valueFunc
	a, b  float64  // arguments of value
	when  condFunc // nil: always there
	hash  uint64   // of the series, for its own rate and rhythm
	ent   entity
}

// seg is some text, followed by one of the site's own texts unless v is negative.
type seg struct {
	text string
	v    int32
}

// entity is what a series is about; indices into the shape, -1 where it does not
// apply.
type entity struct {
	node, pod, container, deployment, daemon, item int32
}

// scope is a kind of thing that there is one series of.
type scope struct {
	each func(*shape) []entity
}

func compile(s *shape, families func(string) bool) (*template, error) {
	t := &template{shape: s, families: families}
	for _, p := range pages {
		text, err := exporterFiles.ReadFile("exporters/" + p.name + ".txt")
		if err != nil {
			return nil, err
		}
		fams, err := t.compilePage(p, string(text))
		if err != nil {
			return nil, fmt.Errorf("exporters/%s.txt: %w", p.name, err)
		}
		t.pages = append(t.pages, fams)
	}
	return t, nil
}

func (t *template) compilePage(p page, text string) ([]family, error) {
	var fams []family
	skip := false
	for n, row := range strings.Split(text, "\n") {
		switch {
		case row == "":
		case strings.HasPrefix(row, "# HELP "):
			name, _, _ := strings.Cut(row[len("# HELP "):], " ")
			if skip = t.families != nil && !t.families(name); !skip {
				fams = append(fams, family{name: name, header: row + "\n"})
			}
		case skip:
		case len(fams) == 0:
			return nil, fmt.Errorf("line %d: a series before # HELP", n+1)
		case strings.HasPrefix(row, "# TYPE "):
			fams[len(fams)-1].header += row + "\n"
		default:
			f := &fams[len(fams)-1]
			lines, err := t.compileRow(p, row)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			f.lines = append(f.lines, lines...)
		}
	}
	return fams, nil
}

// row is one line of an exporter file.
type row struct {
	scope, cond, name, labels, value string
	args                             []string
}

// parseRow reads "@SCOPE[?COND] NAME{LABELS} VALUE [ARGS]". Label values may hold
// spaces and braces but no quotes.
func parseRow(text string) (row, error) {
	var r row
	head, rest, ok := strings.Cut(text, " ")
	if !ok || !strings.HasPrefix(head, "@") {
		return r, fmt.Errorf("%q: want @SCOPE NAME{LABELS} VALUE", text)
	}
	r.scope, r.cond, _ = strings.Cut(head[1:], "?")
	if i := strings.IndexAny(rest, "{ "); i < 0 {
		return r, fmt.Errorf("%q: no value", text)
	} else if r.name = rest[:i]; rest[i] == '{' {
		end := strings.LastIndex(rest, "} ")
		if end < 0 {
			return r, fmt.Errorf("%q: no }", text)
		}
		r.labels, rest = rest[i+1:end], rest[end+2:]
	} else {
		rest = rest[i+1:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return r, fmt.Errorf("%q: no value", text)
	}
	r.value, r.args = fields[0], fields[1:]
	return r, nil
}

func (t *template) compileRow(p page, text string) ([]line, error) {
	r, err := parseRow(text)
	if err != nil {
		return nil, err
	}
	sc, ok := scopes[r.scope]
	if !ok {
		return nil, fmt.Errorf("no scope %q", r.scope)
	}
	cond, err := condition(p, r, t.shape.spares > 0)
	if err != nil {
		return nil, err
	}
	var out []line
	for _, e := range sc.each(t.shape) {
		labels := r.labels
		if p.perNode && e.node >= 0 {
			labels = strings.TrimSuffix(`node="$node",`+labels, ",")
		}
		if r.value == "histogram" {
			lines, err := t.histogram(r, labels, e)
			if err != nil {
				return nil, err
			}
			for i := range lines {
				lines[i].when = cond
			}
			out = append(out, lines...)
			t.series += len(lines)
			continue
		}
		l, err := t.line(r.name, labels, e)
		if err != nil {
			return nil, err
		}
		if l.value, ok = valueOf(r.value); !ok {
			return nil, fmt.Errorf("no value function %q", r.value)
		}
		for i, a := range r.args {
			v, err := strconv.ParseFloat(a, 64)
			if err != nil {
				return nil, fmt.Errorf("argument %q: %w", a, err)
			}
			if i == 0 {
				l.a = v
			} else {
				l.b = v
			}
		}
		l.when = cond
		if cond == nil || !rareConds[r.cond] && !strings.HasPrefix(r.cond, "waits_") {
			t.series++
		}
		out = append(out, l)
	}
	return out, nil
}

// condition joins what the row asks for with what its page and scope imply.
func condition(p page, r row, changing bool) (condFunc, error) {
	var all []condFunc
	if r.cond != "" {
		c, ok := condOf(r.cond)
		if !ok {
			return nil, fmt.Errorf("no condition %q", r.cond)
		}
		all = append(all, c)
	}
	// A pod that runs nowhere has no containers, but what they ask for is known.
	if (r.scope == "container" || r.scope == "limited") && r.cond != "scheduled" && !strings.HasPrefix(r.name, "kube_pod_container_resource_") {
		all = append(all, conds["scheduled"])
	}
	if changing {
		switch r.scope {
		case "pod", "container", "limited":
			all = append(all, func(f *frame, l *line) bool { return !f.st.pods[l.ent.pod].gone })
		}
		if p.dies && (r.scope == "container" || r.scope == "limited") {
			all = append(all, conds["running"]) // what does not run uses nothing
		}
		if p.perNode {
			all = append(all, func(f *frame, l *line) bool { return l.ent.node < 0 || !f.st.nodes[l.ent.node].off })
		}
	}
	if p.dies {
		all = append(all, func(f *frame, l *line) bool { return !f.notReady(l.ent.node) })
	}
	switch len(all) {
	case 0:
		return nil, nil
	case 1:
		return all[0], nil
	default:
		return func(f *frame, l *line) bool {
			for _, c := range all {
				if !c(f, l) {
					return false
				}
			}
			return true
		}, nil
	}
}

// line makes the text of one series.
func (t *template) line(name, labels string, e entity) (line, error) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	l := line{ent: e, hash: hashString(fmt.Sprint(name, labels, e))}
	var err error
	l.segs, err = t.segments(nil, name+labels+" ", e)
	return l, err
}

// segments splits text at its variables. Those that are the same on every site
// are filled in here.
func (t *template) segments(segs []seg, text string, e entity) ([]seg, error) {
	var plain strings.Builder
	for text != "" {
		before, after, found := strings.Cut(text, "$")
		plain.WriteString(before)
		if !found {
			break
		}
		n := 0
		for n < len(after) && (after[n] >= 'a' && after[n] <= 'z' || after[n] == '_' && strings.HasPrefix(after, "uid_")) {
			n++
		}
		name := after[:n]
		text = after[n:]
		if v, i, ok := t.shape.siteVarOf(name, e); ok {
			segs = append(segs, seg{text: plain.String(), v: int32(t.shape.varIndex(v, i))})
			plain.Reset()
			continue
		}
		val, ok := t.shape.staticVar(name, e)
		if !ok {
			return nil, fmt.Errorf("no variable $%s here", name)
		}
		text = val + text // its text may hold variables in turn
	}
	return append(segs, seg{text: plain.String(), v: -1}), nil
}

// histogram makes the buckets, sum and count of "histogram RATE MEAN LE,LE,…":
// exponentially distributed observations.
func (t *template) histogram(r row, labels string, e entity) ([]line, error) {
	if len(r.args) != 3 {
		return nil, fmt.Errorf("histogram: want RATE MEAN BUCKETS")
	}
	rate, err1 := strconv.ParseFloat(r.args[0], 64)
	mean, err2 := strconv.ParseFloat(r.args[1], 64)
	if err1 != nil || err2 != nil || mean <= 0 {
		return nil, fmt.Errorf("histogram: bad numbers %q", r.args)
	}
	comma := ""
	if labels != "" {
		comma = ","
	}
	var out []line
	hash := hashString(fmt.Sprint(r.name, labels, e))
	add := func(name, labels string, share float64, value string) error {
		l, err := t.line(name, labels, e)
		l.value, l.a, l.b, l.hash = values[value], rate, share, hash // one rhythm for all buckets
		out = append(out, l)
		return err
	}
	for le := range strings.SplitSeq(r.args[2], ",") {
		v, err := strconv.ParseFloat(le, 64)
		if err != nil {
			return nil, fmt.Errorf("histogram: bucket %q: %w", le, err)
		}
		if err := add(r.name+"_bucket", labels+comma+`le="`+le+`"`, 1-math.Exp(-v/mean), "histogram_bucket"); err != nil {
			return nil, err
		}
	}
	for _, part := range []struct {
		name, labels string
		share        float64
		value        string
	}{
		{r.name + "_bucket", labels + comma + `le="+Inf"`, 1, "histogram_bucket"},
		{r.name + "_sum", labels, mean, "histogram_sum"},
		{r.name + "_count", labels, 1, "histogram_bucket"},
	} {
		if err := add(part.name, part.labels, part.share, part.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}
