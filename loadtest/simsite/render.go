package simsite

import (
	"math"
	"strconv"
)

// appendPage renders one page as of now. It allocates nothing but room in buf.
func (s *Site) appendPage(buf []byte, page int) []byte {
	f, _ := s.tmpl.frames.Get().(*frame)
	if f == nil {
		f = new(frame)
	}
	defer s.tmpl.frames.Put(f)
	s.snapshot(f)
	fams := s.tmpl.pages[page]
	for i := range fams {
		fam := &fams[i]
		header := false
		for j := range fam.lines {
			l := &fam.lines[j]
			if l.when != nil && !l.when(f, l) {
				continue
			}
			if !header {
				buf = append(buf, fam.header...)
				header = true
			}
			for _, sg := range l.segs {
				buf = append(buf, sg.text...)
				if sg.v >= 0 {
					buf = append(buf, s.vars[sg.v]...)
				}
			}
			buf = appendValue(buf, l.value(f, l))
			buf = append(buf, '\n')
		}
	}
	return buf
}

// appendValue writes whole numbers as such: it is several times faster, and most
// values are.
func appendValue(buf []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(buf, int64(v), 10)
	}
	return strconv.AppendFloat(buf, v, 'g', -1, 64)
}
