package logrule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"muster.dev/muster/control/api/templates"
)

// MaxAnnotation is the length of an annotation, in bytes; what is longer is cut.
const MaxAnnotation = 4096

// Expand fills in an annotation: $labels, $value and $message, with the functions
// of Prometheus' templates that CheckTemplate lets through. What can't be filled in is
// told in the text's place, as Prometheus does.
func Expand(text string, labels map[string]string, value float64, message string, now time.Time) string {
	out := text
	if strings.Contains(text, "{{") {
		var err error
		if out, err = expander(text, labels, value, message, now).Expand(); err != nil {
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

const defs = `{{$labels := .Labels}}{{$value := .Value}}{{$message := .ExternalLabels.message}}`

// The message travels in Prometheus' own template data as an external label, which
// a log rule has none of.
func expander(text string, labels map[string]string, value float64, message string, now time.Time) *template.Expander {
	ls := maps.Clone(labels)
	if ls == nil {
		ls = map[string]string{}
	}
	data := template.AlertTemplateData(ls, map[string]string{"message": cut(message)}, "", promql.Sample{F: value})
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
	if err := expander(text, nil, 0, "", time.Unix(0, 0)).ParseTest(); err != nil {
		return err
	}
	return dialect.Check(text)
}
