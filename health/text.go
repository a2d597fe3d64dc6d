package health

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// render adds the signal's text, or one that it makes up, to b.
func (s *Signal) render(b []byte, value, threshold float64) []byte {
	text := s.Text
	if text == "" {
		text = s.Name + " is {value}, threshold {threshold}"
	}
	for {
		at := strings.IndexByte(text, '{')
		if at < 0 {
			return append(b, text...)
		}
		b, text = append(b, text[:at]...), text[at:]
		if rest, ok := strings.CutPrefix(text, "{value}"); ok {
			b, text = appendValue(b, value, s.Unit), rest
		} else if rest, ok := strings.CutPrefix(text, "{threshold}"); ok {
			b, text = appendValue(b, threshold, s.Unit), rest
		} else {
			b, text = append(b, '{'), text[1:]
		}
	}
}

// FormatValue writes a value with its unit for people: "3.5 min", "93%", "1.2 GiB",
// "2 days". Units it doesn't know follow the number; count has none.
func FormatValue(v float64, unit string) string { return string(appendValue(nil, v, unit)) }

func appendValue(b []byte, v float64, unit string) []byte {
	switch unit {
	case "":
		return appendNumber(b, v)
	case "count":
		return appendNumber(b, math.Round(v))
	case "percent":
		return append(appendNumber(b, v), '%')
	case "ratio":
		return append(appendNumber(b, 100*v), '%')
	case "seconds":
		return appendDuration(b, v)
	case "days":
		from := len(b)
		if b = appendNumber(b, v); string(b[from:]) == "1" {
			return append(b, " day"...)
		}
		return append(b, " days"...)
	case "bytes":
		return appendBytes(b, v)
	default:
		return append(append(appendNumber(b, v), ' '), unit...)
	}
}

// appendNumber keeps three significant digits, and whole numbers below a million whole.
func appendNumber(b []byte, v float64) []byte {
	if a := math.Abs(v); a >= 100 && a < 1e6 {
		return strconv.AppendFloat(b, math.Round(v), 'f', -1, 64)
	} else if a >= 1e6 || a != 0 && a < 1e-3 {
		return strconv.AppendFloat(b, v, 'g', 3, 64)
	}
	from := len(b)
	b = strconv.AppendFloat(b, v, 'g', 3, 64)
	if slices.Contains(b[from:], 'e') { // 99.96 rounds to 1e+02
		return strconv.AppendFloat(b[:from], math.Round(v), 'f', -1, 64)
	}
	return b
}

func appendDuration(b []byte, v float64) []byte {
	unit := " days"
	switch a := math.Abs(v); {
	case a < 0.9995:
		v, unit = v*1000, " ms"
	case a < 120:
		unit = " s"
	case a < 7200:
		v, unit = v/60, " min"
	case a < 48*3600:
		v, unit = v/3600, " h"
	default:
		v /= 86400
	}
	return append(appendNumber(b, v), unit...)
}

func appendBytes(b []byte, v float64) []byte {
	units := [...]string{" B", " KiB", " MiB", " GiB", " TiB", " PiB"}
	i := 0
	for math.Abs(v) >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return append(appendNumber(b, v), units[i]...)
}
