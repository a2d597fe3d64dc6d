package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/logquery"
	"muster.dev/muster/internal/promexpr"
	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

const (
	maxBodyBytes = 64 << 10
	// maxPolicyBytes of a HealthPolicy to try: a hundred signals with long queries.
	maxPolicyBytes = 1 << 20
	maxQueryBytes  = 16 << 10 // of one PromQL expression
	maxPoints      = 11000    // of one series of a range query, as in Prometheus
	defaultLimit   = 100
	maxLimit       = 1000
	maxLogCursor   = 16 << 10 // it has a position for each region that lags
	maxPodCursor   = 4 << 10  // a continue token of the API server
	maxPodLines    = 10_000   // of a log, from its end
	maxApplyBytes  = 2 << 20  // of a form with YAML in JSON
	maxValues      = 200      // of a parameter that may be repeated
)

// param is a parameter of a query string or a form; check says what is wrong with a
// value and what would be right.
type param struct {
	name  string
	check func(string) error
}

func text(max int) func(string) error {
	return func(s string) error {
		if utf8.RuneCountInString(s) > max || !utf8.ValidString(s) {
			return fmt.Errorf("want at most %d characters", max)
		}
		return nil
	}
}

func oneOf(want ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(want, s) {
			return fmt.Errorf("%q: want one of %s", s, strings.Join(want, ", "))
		}
		return nil
	}
}

func whole(lo, hi int) func(string) error {
	return func(s string) error {
		if n, err := strconv.Atoi(s); err != nil || n < lo || n > hi {
			return fmt.Errorf("%q: want a whole number from %d to %d", s, lo, hi)
		}
		return nil
	}
}

var (
	tenantParam = param{"tenant", fleet.ValidateTenant}
	limitParam  = param{"limit", whole(1, maxLimit)}
	cursorParam = param{"cursor", text(1024)}
	seriesLimit = param{"limit", whole(0, 1_000_000)}
	withinParam = param{"within", oneOf(string(promexpr.Least), string(promexpr.Largest), string(promexpr.Coverage))}

	oneTenant = []param{tenantParam}
	triedNow  = []param{tenantParam, {"patience", duration}}
	oneView   = []param{tenantParam, {"shared", oneOf("true")}}
	savedView = append(oneView[:2:2], param{"new", oneOf("true")})
	explained = []param{tenantParam, {"shadow", oneOf("true")}}
	followed  = []param{tenantParam, {"brief", oneOf("true")}}
	replayed  = []param{tenantParam, cursorParam, {"since", text(32)}}
	// oidcAnswer is what we take of an identity provider's answer.
	oidcAnswer = []param{{"code", text(4096)}, {"state", text(256)}, {"error", text(256)}, {"error_description", text(4096)}}
	siteList   = []param{
		tenantParam, limitParam, cursorParam,
		{"virtualSite", text(320)}, {"region", text(63)}, {"q", text(200)},
		{"colour", oneOf(string(fleet.Green), string(fleet.Orange), string(fleet.Red), string(fleet.Grey))},
		{"phase", oneOf(string(fleet.PhasePending), string(fleet.PhaseApproved), string(fleet.PhaseOnline), string(fleet.PhaseOffline), string(fleet.PhaseDecommissioned))},
		{"sort", oneOf("score", "name")},
	}
	sitePage = []param{
		tenantParam, cursorParam, {"limit", whole(0, wire.MaxSites)}, {"q", text(sitequery.MaxLength)}, {"sort", text(1000)}, {"columns", text(8000)},
		{"group", text(317)}, {"format", oneOf("json", "csv")},
	}
	siteMap           = []param{tenantParam, {"q", text(sitequery.MaxLength)}, {"by", text(317)}}
	siteDistributions = []param{tenantParam, {"q", text(sitequery.MaxLength)}, {"of", text(4000)}}
	linkList          = []param{tenantParam, cursorParam, {"limit", whole(0, wire.MaxLinks)}, {"q", text(sitequery.MaxLength)}, {"sort", text(1000)}, {"by", text(317)}}
	costList          = []param{
		tenantParam, limitParam, cursorParam, {"by", oneOf(wire.CostBySite, wire.CostByVirtualSite, wire.CostByTenant)},
		{"sort", oneOf(append([]string{wire.CostByName}, wire.CostColumns...)...)}, {"virtualSite", text(320)}, {"q", text(200)}, {"patience", duration},
	}
	costNames  = []param{tenantParam, {"site", siteName}, {"patience", duration}}
	logFilters = []param{
		tenantParam, {"query", logText}, {"from", text(64)}, {"to", text(64)}, {"virtualSite", text(320)},
		{"site", text(63)}, {"namespace", text(63)}, {"severity", text(64)},
	}
	logSearch = append(slices.Clone(logFilters), limitParam, param{"cursor", text(maxLogCursor)}, param{"patience", duration})
	// manyValues may be repeated or separated by commas in the log operations.
	manyValues = []string{"site", "namespace", "severity"}
	alertScope = []param{tenantParam, {"virtualSite", text(320)}, {"site", text(63)}}
	alertList  = append(slices.Clone(alertScope), param{"severity", oneOf("critical", "warning", "info")},
		param{"state", oneOf("active", "suppressed", "all")}, param{"q", text(200)}, limitParam, cursorParam)
	alertGroups = append(slices.Clone(alertScope), param{"severity", oneOf("critical", "warning", "info")},
		param{"state", oneOf("active", "suppressed", "all")}, param{"q", text(200)}, param{"sort", oneOf("severity", "count", "newest")}, limitParam)
	notificationCounts = []param{tenantParam, limitParam}
	rolloutList        = []param{
		tenantParam, limitParam, cursorParam, {"namespace", namespaceName}, {"state", oneOf("active", "ended", "all")}, {"q", text(200)}, {"object", text(400)},
		{"phase", oneOf("Queued", "Progressing", "Paused", "RollingBack", "RolledBack", "Completed", "Superseded", "Invalid")},
	}
	rolloutStream = []param{tenantParam, {"namespace", namespaceName}}
	rolloutSites  = []param{
		tenantParam, cursorParam, {"limit", whole(1, maxSteps)}, {"q", text(63)}, {"wave", whole(1, 100_000)},
		{"step", oneOf("waiting", "offline", "held", "updating", "ready", "passed", "failed", "rolledBack")},
	}
	silenceList     = []param{tenantParam, {"state", oneOf("active", "pending", "expired", "all")}}
	podList         = []param{tenantParam, limitParam, {"cursor", text(maxPodCursor)}, {"site", siteName}}
	podLog          = []param{tenantParam, {"container", siteName}, {"previous", oneOf("true")}, {"lines", whole(1, maxPodLines)}}
	pagedList       = []param{tenantParam, limitParam, cursorParam}
	virtualSiteItem = []param{tenantParam, {"namespace", text(63)}}
	instantQuery    = []param{tenantParam, {"query", promQL}, {"time", timestamp}, {"timeout", duration}, seriesLimit}
	nameQuery       = []param{tenantParam, {"label", text(128)}, {"match", promQL}, {"q", text(200)}, {"start", timestamp}, {"end", timestamp}, {"limit", whole(1, 10_000)}}
	conditionQuery  = []param{{"query", promQL}, {"site", siteName}}
	rangeQuery      = []param{tenantParam, {"query", promQL}, {"start", timestamp}, {"end", timestamp}, {"step", duration}, {"timeout", duration}, seriesLimit, withinParam}
)

func namespaceName(s string) error {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return fmt.Errorf("%q: want a namespace as you type it, such as shop", s)
	}
	return nil
}

func siteName(s string) error {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return fmt.Errorf("%q: want the name of a site", s)
	}
	return nil
}

func promQL(s string) error {
	if len(s) > maxQueryBytes || !utf8.ValidString(s) {
		return fmt.Errorf("want at most %d bytes of PromQL", maxQueryBytes)
	}
	return nil
}

func logText(s string) error {
	if len(s) > logquery.MaxLength || !utf8.ValidString(s) {
		return fmt.Errorf("want at most %d bytes of text", logquery.MaxLength)
	}
	return nil
}

func timestamp(s string) error {
	_, err := parseTime(s)
	return err
}

func duration(s string) error {
	_, err := parseStep(s)
	return err
}

// parseTime reads a time as Prometheus does: RFC 3339 or Unix seconds.
func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1e11 {
		return time.UnixMilli(int64(f * 1000)), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q: want RFC 3339, such as 2026-01-31T12:00:00Z, or Unix seconds", s)
}

// parseStep reads a duration as Prometheus does: seconds, or such as 5m.
func parseStep(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 && f < 1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	if d, err := model.ParseDuration(s); err == nil && d > 0 {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("%q: want seconds, or a duration such as 15s or 5m, greater than zero", s)
}

// checked returns the values that are set, or a problem that names all that is
// wrong: unknown, repeated and malformed parameters. Those in many may be repeated
// and may hold several values, separated by commas.
func checked(in url.Values, known []param, many ...string) (url.Values, error) {
	out := url.Values{}
	var errs []wire.FieldError
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		i := slices.IndexFunc(known, func(p param) bool { return p.name == name })
		values := in[name]
		if slices.Contains(many, name) {
			values = wire.Values(values)
		}
		switch {
		case i < 0:
			errs = append(errs, wire.FieldError{Field: printable(name), Detail: "unknown parameter; want " + listNames(known)})
			continue
		case len(values) > 1 && !slices.Contains(many, name):
			errs = append(errs, wire.FieldError{Field: name, Detail: "given more than once"})
			continue
		case len(values) > maxValues:
			errs = append(errs, wire.FieldError{Field: name, Detail: fmt.Sprintf("%d values, want at most %d", len(values), maxValues)})
			continue
		}
		for _, v := range values {
			if v == "" {
				continue
			}
			if err := known[i].check(v); err != nil {
				errs = append(errs, wire.FieldError{Field: name, Detail: err.Error()})
			}
			out.Add(name, v)
		}
	}
	if len(errs) > 0 {
		return nil, invalidFields(errs)
	}
	return out, nil
}

func listNames(known []param) string {
	if len(known) == 0 {
		return "none"
	}
	names := make([]string, len(known))
	for i, p := range known {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

func printable(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}

func limitOf(q url.Values) int {
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		return n
	}
	return defaultLimit
}

// mediaType tells the type of the body.
func mediaType(r *http.Request) string {
	mt, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return mt
}

// readJSON reads the body into out, strictly; an absent body leaves out as it is
// where optional.
func readJSON(r *http.Request, out any, optional bool) error {
	if optional && (r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0) {
		return nil
	}
	if mediaType(r) != "application/json" {
		return newProblem(http.StatusUnsupportedMediaType, wire.ProblemMediaKind, "want a body with Content-Type: application/json")
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(out)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			return invalid("body", "want one JSON object and nothing after it")
		}
		return nil
	}
	var (
		tooLarge *http.MaxBytesError
		typeErr  *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &tooLarge):
		return err
	case errors.As(err, &typeErr) && typeErr.Field != "":
		return invalid(typeErr.Field, "want %s, have %s", jsonName(typeErr), typeErr.Value)
	case errors.Is(err, io.EOF):
		return invalid("body", "is empty; want a JSON object")
	default:
		return invalid("body", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
}

func jsonName(e *json.UnmarshalTypeError) string {
	switch k := e.Type.Kind().String(); {
	case strings.HasPrefix(k, "float"), strings.HasPrefix(k, "int"):
		return "a number"
	case k == "map", k == "struct":
		return "an object"
	default:
		return "a " + k
	}
}
