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
	"text/template/parse"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
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

// The message travels in Prometheus' own template data as an external label, which
// a log rule has none of.
func expander(text string, labels map[string]string, value float64, message string, now time.Time) *template.Expander {
	const defs = `{{$labels := .Labels}}{{$value := .Value}}{{$message := .ExternalLabels.message}}`
	ls := maps.Clone(labels)
	if ls == nil {
		ls = map[string]string{}
	}
	data := template.AlertTemplateData(ls, map[string]string{"message": cut(message)}, "", promql.Sample{F: value})
	query := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, errSeries }
	e := template.NewTemplateExpander(context.Background(), defs+text, "annotation", data, model.TimeFromUnixNano(now.UnixNano()), query, &url.URL{}, nil)
	e.Funcs(bounded)
	return e
}

// longWidth is a format whose result has nothing to do with the length of what goes in.
var longWidth = regexp.MustCompile(`[0-9]{4,}|%[^a-zA-Z%]*\*`)

// bounded stand for functions whose results could double with every call, so that no
// annotation takes a server's memory.
var bounded = map[string]any{
	"printf": func(format string, args ...any) (string, error) {
		if longWidth.MatchString(format) {
			return "", errors.New("printf: a width of * or of more than three digits")
		}
		return cut(fmt.Sprintf(format, args...)), nil
	},
	"print":   func(args ...any) string { return cut(fmt.Sprint(args...)) },
	"println": func(args ...any) string { return cut(fmt.Sprintln(args...)) },
	"reReplaceAll": func(pattern, repl, text string) (string, error) {
		re, err := regexp.Compile(pattern)
		if err != nil {
			return "", err
		}
		return cut(re.ReplaceAllString(text, repl)), nil
	},
	"urlQueryEscape": func(s string) string { return cut(url.QueryEscape(s)) },
}

// refused are functions that want series, or grow their input without a bound.
var refused = []string{"query", "first", "label", "value", "strvalue", "sortByLabel", "graphLink", "tableLink", "tmpl", "safeHtml", "args", "html", "js", "urlquery", "call"}

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
	tree := parse.New("annotation")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse("{{$labels := 0}}{{$value := 0}}{{$message := 0}}"+text, "{{", "}}", trees); err != nil {
		return err
	}
	if len(trees) > 1 {
		return errors.New("define and block are not available here")
	}
	return walk(tree.Root)
}

// walk refuses loops, templates in templates and some functions.
func walk(n parse.Node) error {
	branch := func(b *parse.BranchNode) error {
		err := walk(b.Pipe)
		if b.List != nil {
			err = errors.Join(err, walk(b.List))
		}
		if b.ElseList != nil {
			err = errors.Join(err, walk(b.ElseList))
		}
		return err
	}
	switch n := n.(type) {
	case *parse.ListNode:
		return each(n.Nodes)
	case *parse.ActionNode:
		return walk(n.Pipe)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			if err := each(c.Args); err != nil {
				return err
			}
		}
	case *parse.ChainNode:
		return walk(n.Node)
	case *parse.IfNode:
		return branch(&n.BranchNode)
	case *parse.WithNode:
		return branch(&n.BranchNode)
	case *parse.RangeNode:
		return errors.New("range is not available here: an alert has nothing to list")
	case *parse.TemplateNode:
		return errors.New("template is not available here")
	case *parse.IdentifierNode:
		if slices.Contains(refused, n.Ident) {
			return fmt.Errorf("the template function %s is not available here", n.Ident)
		}
	}
	return nil
}

func each(nodes []parse.Node) error {
	for _, n := range nodes {
		if err := walk(n); err != nil {
			return err
		}
	}
	return nil
}
