package fleet

import "strings"

// Bounds of what a site may say about itself.
const (
	maxSystemLabels   = 32
	maxSystemLabelKey = 40
	maxLabelValue     = 63
)

// SystemLabels turns what a site discovered about itself (keys without the
// muster.dev/system- prefix) into labels that Kubernetes takes: full keys, at most
// 32 of them, bad keys left out, values made into label values. A site may be
// hostile, so anything goes in.
func SystemLabels(discovered map[string]string) map[string]string {
	out := make(map[string]string, min(len(discovered), maxSystemLabels))
	if len(discovered) > 10*maxSystemLabels {
		return out // nobody discovers that much
	}
	for k, v := range discovered {
		if len(k) > maxSystemLabelKey || !dnsLabel.MatchString(k) {
			continue
		}
		if v = LabelValue(v); v != "" {
			out[SystemLabelPrefix+k] = v
		}
	}
	for len(out) > maxSystemLabels { // the last ones in alphabetical order go, so that the rest is stable
		last := ""
		for k := range out {
			last = max(last, k)
		}
		delete(out, last)
	}
	return out
}

// LabelValue makes any text into a Kubernetes label value: what is not a letter,
// digit, '-', '_' or '.' becomes '-', runs of '-' become one, ends are trimmed,
// at most 63 bytes. May be empty.
func LabelValue(s string) string {
	if len(s) > 4*maxLabelValue {
		s = s[:4*maxLabelValue]
	}
	var b strings.Builder
	dash := false
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.':
			b.WriteRune(r)
			dash = false
		case !dash:
			b.WriteByte('-')
			dash = true
		}
	}
	out := strings.TrimLeft(b.String(), "-_.")
	if len(out) > maxLabelValue {
		out = out[:maxLabelValue]
	}
	return strings.TrimRight(out, "-_.")
}

// SiteName makes a host name into a site's name: lower case, what is not a letter
// or digit becomes '-', at most 63 bytes. May be empty.
func SiteName(host string) string {
	out := strings.ToLower(LabelValue(host))
	out = strings.Map(func(r rune) rune {
		if r == '_' || r == '.' {
			return '-'
		}
		return r
	}, out)
	return strings.Trim(out, "-")
}
