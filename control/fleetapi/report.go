package fleetapi

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/wire"
)

// Limits of what a site may say about itself. What goes beyond is cut or left out,
// and named in the condition ReportAccepted; the rest of the report counts.
const (
	maxConditions = 32
	maxReason     = 128
	maxMessage    = 1024
	maxVersions   = 20
	maxVersion    = 64
	maxProblems   = 5
)

// ConditionReportAccepted is False while a site's reports hold what can't be taken.
// Muster alone sets it.
const ConditionReportAccepted = "ReportAccepted"

// ConditionClusterAccepted is False while what a site says of its cluster holds what can't be
// taken. Muster alone sets it.
const ConditionClusterAccepted = "KubernetesStatusAccepted"

// conditionPolicyApplied is reported by sites.
const conditionPolicyApplied = fleet.KindCollectionPolicy + "Applied"

// conditionHostApplied is reported by sites.
const conditionHostApplied = hostconfig.Kind + "Applied"

// reserved conditions on a Site are Muster's own: a site can't set or clear them.
var reserved = map[string]bool{ConditionReportAccepted: true, ConditionClusterAccepted: true, "Healthy": true, v1alpha1.ConditionReady: true, v1alpha1.ConditionResetOverdue: true, "Approved": true}

// regionalTypes are the conditions of a Site that its regional sets: what it makes of
// the site's logs. No other type is taken from a regional, and none of these from a
// site. A type that the regional does not name is absent.
var regionalTypes = map[string]bool{"LogBudgetExceeded": true, "LogsAccepted": true}

var (
	conditionType   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	conditionReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
	versionName     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$`)
	hexDigest       = regexp.MustCompile(`^([0-9a-f]{64})?$`)
)

// report is a site's report, made harmless.
type report struct {
	appliedRevision string
	policyHash      string
	hostHash        string             // of the host configuration in effect
	conditions      []metav1.Condition // without times
	versions        map[string]string
	software        []v1alpha1.SiteSoftware // in the order of software.Components
	reset           *wire.FactoryResetAnswer
	problems        []string
	flood           bool
}

// refusesPolicy: the inventory reads the same of a Site's status (PolicyRefused).
func (r *report) refusesPolicy() bool {
	return meta.IsStatusConditionFalse(r.conditions, conditionPolicyApplied)
}

// refusesHost tells why the site's host can't be configured as it should be.
func (r *report) refusesHost() (why string, refused bool) {
	c := meta.FindStatusCondition(r.conditions, conditionHostApplied)
	if c == nil || c.Status != metav1.ConditionFalse {
		return "", false
	}
	return c.Message, true
}

// clean never fails: a site's report is outside bytes.
func clean(r *wire.Report) *report {
	out := &report{versions: map[string]string{}}
	problem := func(format string, args ...any) {
		if len(out.problems) < maxProblems {
			out.problems = append(out.problems, fmt.Sprintf(format, args...))
		} else if len(out.problems) == maxProblems {
			out.problems = append(out.problems, "and more")
		}
	}
	digest := func(what, v string) string {
		if !hexDigest.MatchString(v) {
			problem("%s %q is no SHA-256", what, clip(v, 20))
			return ""
		}
		return v
	}
	out.appliedRevision = digest("applied revision", r.GetAppliedRevision())
	out.policyHash = digest("policy hash", r.GetPolicyHash())
	out.hostHash = digest("host configuration", r.GetHostConfiguration())

	out.software = cleanSoftware(r.GetSoftware(), problem)
	out.reset = cleanReset(r.GetFactoryReset(), problem)
	seen := map[string]bool{}
	for i, c := range r.GetConditions() {
		if i >= maxConditions {
			problem("%d conditions, only the first %d are taken", len(r.GetConditions()), maxConditions)
			break
		}
		typ := c.GetType()
		switch {
		case !conditionType.MatchString(typ):
			problem("condition type %q is not CamelCase", clip(typ, 20))
			continue
		case reserved[typ] || regionalTypes[typ]:
			problem("condition %s is Muster's own", typ)
			continue
		case seen[typ]:
			problem("condition %s is there twice", typ)
			continue
		}
		seen[typ] = true
		cond := cleanCondition(c, problem)
		out.conditions = append(out.conditions, cond)
	}
	out.software = cleanSoftware(r.GetSoftware(), problem)
	if n := len(r.GetVersions()); n > maxVersions {
		problem("%d versions, want at most %d; none is taken", n, maxVersions)
		return out
	}
	for k, v := range r.GetVersions() {
		if !versionName.MatchString(k) {
			problem("version of %q is no lower-case name", clip(k, 20))
			continue
		}
		out.versions[k] = clip(v, maxVersion)
	}
	return out
}

// cleanCondition makes all of a condition but its type harmless.
func cleanCondition(c *wire.Condition, problem func(string, ...any)) metav1.Condition {
	typ := c.GetType()
	cond := metav1.Condition{Type: typ, Status: metav1.ConditionStatus(c.GetStatus()), Reason: c.GetReason(), Message: text(c.GetMessage(), maxMessage)}
	if s := cond.Status; s != metav1.ConditionTrue && s != metav1.ConditionFalse && s != metav1.ConditionUnknown {
		problem("condition %s: status %q is none of True, False, Unknown", typ, clip(c.GetStatus(), 20))
		cond.Status = metav1.ConditionUnknown
	}
	if cond.Reason == "" {
		cond.Reason = "Reported"
	}
	if len(cond.Reason) > maxReason || !conditionReason.MatchString(cond.Reason) {
		problem("condition %s: reason %q is not CamelCase", typ, clip(cond.Reason, 20))
		cond.Reason = "Invalid"
	}
	if len(c.GetMessage()) > maxMessage {
		problem("condition %s: a message of %d bytes is cut to %d", typ, len(c.GetMessage()), maxMessage)
	}
	return cond
}

// cleanRegional keeps what a regional may say of a site, the last of each type, by type.
func cleanRegional(conds []*wire.Condition) []metav1.Condition {
	byType := map[string]metav1.Condition{}
	for _, c := range conds {
		if regionalTypes[c.GetType()] {
			byType[c.GetType()] = cleanCondition(c, func(string, ...any) {})
		}
	}
	out := make([]metav1.Condition, 0, len(byType))
	for _, typ := range slices.Sorted(maps.Keys(byType)) {
		out = append(out, byType[typ])
	}
	return out
}

// text keeps a message readable: valid UTF-8, no control characters but line ends,
// at most n bytes.
func text(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || (r < ' ' && r != '\n') || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	for len(s) > n { // a replacement may be longer than what it replaced
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

var unprintable = regexp.MustCompile(`[^\x20-\x7e]`)

// clip keeps a name short and printable.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return unprintable.ReplaceAllString(s, "?")
}
