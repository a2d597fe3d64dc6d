package health

import (
	"math"
	"strconv"
	"strings"
)

// render fills in the signal's text, or makes one up.
func (s *Signal) render(value, threshold float64) string {
	text := s.Text
	if text == "" {
		text = s.Name + " is {value}, threshold {threshold}"
	}
	if !strings.Contains(text, "{") {
		return text
	}
	text = strings.ReplaceAll(text, "{value}", FormatValue(value, s.Unit))
	return strings.ReplaceAll(text, "{threshold}", FormatValue(threshold, s.Unit))
}

// FormatValue writes a value with its unit for people: "3.5 min", "93%", "1.2 GiB",
// "2 days". Units it doesn't know follow the number; count has none.
func FormatValue(v float64, unit string) string {
	switch unit {
	case "", "count":
		if unit == "count" {
			v = math.Round(v)
		}
		return number(v)
	case "percent":
		return number(v) + "%"
	case "ratio":
		return number(100*v) + "%"
	case "seconds":
		return duration(v)
	case "days":
		if number(v) == "1" {
			return "1 day"
		}
		return number(v) + " days"
	case "bytes":
		return bytes(v)
	default:
		return number(v) + " " + unit
	}
}

// number keeps three significant digits, and whole numbers below a million whole.
func number(v float64) string {
	if a := math.Abs(v); a >= 100 && a < 1e6 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	} else if a >= 1e6 || a != 0 && a < 1e-3 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	s := strconv.FormatFloat(v, 'g', 3, 64)
	if strings.ContainsRune(s, 'e') { // 99.96 rounds to 1e+02
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return s
}

func duration(v float64) string {
	a := math.Abs(v)
	switch {
	case a < 0.9995:
		return number(v*1000) + " ms"
	case a < 120:
		return number(v) + " s"
	case a < 7200:
		return number(v/60) + " min"
	case a < 48*3600:
		return number(v/3600) + " h"
	default:
		return number(v/86400) + " days"
	}
}

func bytes(v float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for math.Abs(v) >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return number(v) + " " + units[i]
}
