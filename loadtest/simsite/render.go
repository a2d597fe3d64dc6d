package simsite

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// appendPage renders one page as of now, of one node or all. It allocates nothing but
// room in buf.
func (s *Site) appendPage(buf []byte, page int, node int32) []byte {
	f, _ := s.tmpl.frames.Get().(*frame)
	if f == nil {
		f = new(frame)
	}
	defer s.tmpl.frames.Put(f)
	s.snapshot(f)
	fams := s.tmpl.pages[page]
	wrong := &f.st.pages[page*len(f.st.nodes)+int(max(node, 0))]
	for i := range fams {
		fam := &fams[i]
		header := false
		if slices.Contains(wrong.skip, fam.name) {
			continue
		}
		what := wrong.of(fam.name)
		for j := range fam.lines {
			l := &fam.lines[j]
			if node != allNodes && l.ent.node != node && l.ent.node >= 0 || l.when != nil && !l.when(f, l) {
				continue
			}
			if !header {
				buf = appendHeader(buf, fam, what)
				header = true
			}
			begin := len(buf)
			buf = s.appendName(buf, l)
			v := l.value(f, l)
			if wrong.zeros != nil {
				v = max(0, v-wrong.zeros[l])
			}
			if what == "" {
				buf = append(appendValue(buf, v), '\n')
				continue
			}
			buf = appendGarbage(buf, begin, v, what, f.now)
		}
	}
	return buf
}

// appendName writes a series up to its value.
func (s *Site) appendName(buf []byte, l *line) []byte {
	for _, sg := range l.segs {
		buf = append(buf, sg.text...)
		if sg.v >= 0 {
			buf = append(buf, s.vars[sg.v]...)
		}
	}
	return buf
}

// counters is what the counters of one node's page have come to, by line.
func (t *template) counters(f *frame, page int, node int32) map[*line]float64 {
	out := map[*line]float64{}
	for i := range t.pages[page] {
		fam := &t.pages[page][i]
		kind := "# TYPE " + fam.name + " "
		if !strings.Contains(fam.header, kind+"counter\n") && !strings.Contains(fam.header, kind+"histogram\n") {
			continue
		}
		for j := range fam.lines {
			if l := &fam.lines[j]; l.ent.node == node || l.ent.node < 0 {
				out[l] = l.value(f, l)
			}
		}
	}
	return out
}

// of says what is wrong with a family; "": nothing.
func (p *pageState) of(family string) string {
	for _, g := range p.garbage {
		if g[0] == family {
			return g[1]
		}
	}
	return ""
}

func appendHeader(buf []byte, fam *family, what string) []byte {
	if what == "counter" || what == "gauge" {
		return append(buf, "# TYPE "+fam.name+" "+what+"\n"...)
	}
	return append(buf, fam.header...)
}

// appendGarbage ends a line that began at begin as something says that is wrong.
func appendGarbage(buf []byte, begin int, v float64, what string, now float64) []byte {
	ahead, timed := strings.CutPrefix(what, "at+")
	switch {
	case what == "counter" || what == "gauge":
		buf = appendValue(buf, v)
	case what == "twice":
		line := string(buf[begin:])
		buf = append(appendValue(buf, v), '\n')
		buf = appendValue(append(buf, line...), v+1)
	case timed:
		d, _ := time.ParseDuration(ahead)
		buf = append(appendValue(buf, v), ' ')
		buf = strconv.AppendInt(buf, int64(1000*(now+d.Seconds())), 10)
	default:
		buf = append(buf, what...)
	}
	return append(buf, '\n')
}

// appendValue writes whole numbers as such: it is several times faster, and most
// values are.
func appendValue(buf []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(buf, int64(v), 10)
	}
	return strconv.AppendFloat(buf, v, 'g', -1, 64)
}
