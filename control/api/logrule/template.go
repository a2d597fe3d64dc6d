package logrule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/templates"
)

// MaxAnnotation is the length of an annotation, in bytes; what is longer is cut.
const MaxAnnotation = 4096

// Told is what an annotation can tell of an alert.
type Told struct {
	Labels  map[string]string
	Value   float64
	Message string            // of a line that matched
	Fields  map[string]string // of that line, those of include, by Field.Label
}

// Expand fills in an annotation: $labels, $value, $message and $fields, with the functions
// of Prometheus' templates that CheckTemplate lets through. What can't be filled in is
// told in the text's place, as Prometheus does.
func Expand(text string, told Told, now time.Time) string {
	out := text
	if strings.Contains(text, "{{") {
		var err error
		if out, err = expander(text, told, now).Expand(); err != nil {
			out = fmt.Sprintf("<error expanding template: %v>", err)
		}
	}
	return cut(strings.ToValidUTF8(out, "\uFFFD"))
}

func cut(s string) string {
	if len(s) <= MaxAnnotation {
		return s
	}
	return strings.ToValidUTF8(s[:MaxAnnotation-3], "") + "..."
}

var errSeries = errors.New("a log rule has no series to ask")

// messageKey is no Field.Label.
const messageKey = "the message"

const defs = `{{$labels := .Labels}}{{$value := .Value}}{{$message := index .ExternalLabels "` + messageKey + `"}}{{$fields := .ExternalLabels}}`

// The message and the fields travel in Prometheus' own template data as external labels, which
// a log rule has none of.
func expander(text string, told Told, now time.Time) *template.Expander {
	ls, line := maps.Clone(told.Labels), map[string]string{messageKey: cut(told.Message)}
	if ls == nil {
		ls = map[string]string{}
	}
	maps.Copy(line, told.Fields)
	data := template.AlertTemplateData(ls, line, "", promql.Sample{F: told.Value})
	query := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, errSeries }
	return template.NewTemplateExpander(context.Background(), defs+text, "annotation", data, model.TimeFromUnixNano(now.UnixNano()), query, &url.URL{}, nil)
}

// dialect of annotations. What wants series has none to ask, and the rest grows its
// input without a bound.
var dialect = templates.Dialect{
	Defs:      defs,
	MaxResult: 1 << 20, // it is made whole before it is cut
	Refused: func() map[string]string {
		out := map[string]string{}
		for _, name := range []string{"query", "first", "label", "value", "strvalue", "sortByLabel", "graphLink", "tableLink"} {
			out[name] = "a log rule has no series to ask"
		}
		for _, name := range []string{"tmpl", "safeHtml", "args", "html", "js", "urlquery", "call"} {
			out[name] = "annotations are text"
		}
		return out
	}(),
}

// CheckTemplate says what is wrong with an annotation, without running it.
func CheckTemplate(text string) error {
	if len(text) > MaxAnnotation {
		return fmt.Errorf("longer than %d bytes", MaxAnnotation)
	}
	if !strings.Contains(text, "{{") {
		return nil
	}
	if err := expander(text, Told{}, time.Unix(0, 0)).ParseTest(); err != nil {
		return err
	}
	return dialect.Check(text)
}

var fieldInText = regexp.MustCompile(`\$fields\.([A-Za-z0-9_]+)`)

// included checks that the fields in an annotation are there to be filled in.
func (c *checker) included(at *field.Path, text string) {
	var has []string
	for _, name := range c.r.Include {
		if f, err := ParseField(name); err == nil {
			has = append(has, f.Label)
		}
	}
	for _, m := range fieldInText.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(has, m[1]) {
			c.errs = append(c.errs, field.Invalid(at, m[0], "the rule does not include such a field; name it in include, such as labels."+m[1]))
		}
	}
}
