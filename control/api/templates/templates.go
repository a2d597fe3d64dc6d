// Package templates bounds the templates that tenants write into rules and receivers.
// Prometheus and Alertmanager run them for all tenants in one process, into a buffer
// without a limit, so what a template can make of its input is worked out before it is
// taken: its text, with every function's result at its longest.
//
// The bound is an upper one and generous; what it stops are templates that multiply:
// print of print, range over a number, templates that call each other. Parse and Cost
// give it for an input of known size, to who runs a template ten thousand times.
package templates

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"

	"muster.dev/muster/internal/regexcost"
)

const (
	// MaxBytes is the longest template.
	MaxBytes = 16 << 10
	// MaxResult bounds the longest text, and each value on the way to it, with no loop run
	// more than once. How often loops run is known to who renders (alerting/manager).
	MaxResult = 4 << 20

	// MaxWork bounds what one run does, see Cost, with values of the largest size: half a
	// second. What runs can't be cut in Prometheus' and Alertmanager's renderers.
	MaxWork = 1 << 29
	// maxCall bounds one call of a function, which nobody can cut.
	maxCall = MaxWork / 2
	// MaxRegex is how many instructions a regular expression may have.
	MaxRegex = 1000

	maxNested = 2        // loops in loops
	valueSize = 16 << 10 // at most, of a label, an annotation, a list of them
	largest   = int64(1) << 40

	// Work that is done before and beside what functions do, in nanoseconds, as measured
	// (BenchmarkRun): for each run, each byte of the text, each instruction compiled, each run at a byte.
	workRun, workByte, workInstruction, workMatch = 70_000, 160, 300, 3
)

// Input is what a template is run with.
type Input struct {
	Value int64 // bytes of the longest value, also of all labels printed as one
	Items int64 // labels that a loop may go over
}

// Cost is what one run can come to at most.
type Cost struct {
	Bytes int64 // of the result
	Work  int64 // a unit is about a nanosecond, or a byte copied
}

// Dialect is what differs between those who run templates.
type Dialect struct {
	Defs    string            // declarations that come before the text, such as {{$labels := .Labels}}
	Refused map[string]string // functions that are not available, and why
	// MaxResult of the longest text; 0: MaxResult, the constant.
	MaxResult int64
	// Template lets a text call the templates that ship with the program.
	Template bool
}

// Rules is the dialect of tenants' metric rules, which Prometheus' templates expand.
// Functions that ask for series would see those of all tenants.
var Rules = Dialect{
	Defs:    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}",
	Refused: map[string]string{"query": "it would see other tenants' series; compute the value in expr"},
}

// Template is a text that was parsed. Safe for concurrent use.
type Template struct {
	d    Dialect
	text string
	root *parse.ListNode // nil: nothing is to be filled in
}

// Parse reads a template. What it costs is not looked at yet.
func (d Dialect) Parse(text string) (*Template, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("longer than %d bytes", MaxBytes)
	}
	t := &Template{d: d, text: text}
	if !strings.Contains(text, "{{") {
		return t, nil
	}
	tree := parse.New("text")
	tree.Mode = parse.SkipFuncCheck
	trees := map[string]*parse.Tree{}
	if _, err := tree.Parse(d.Defs+text, "{{", "}}", trees); err != nil {
		return nil, err
	}
	if len(trees) > 1 {
		return nil, errors.New("define and block are not available here")
	}
	t.root = tree.Root
	return t, nil
}

// Cost bounds a run with such an input. The error says what is too much in any run.
func (t *Template) Cost(in Input) (Cost, error) {
	c := Cost{Bytes: int64(len(t.text)), Work: workRun + workByte*int64(len(t.text))}
	if t.root == nil {
		return c, nil
	}
	w := &walker{d: t.d, most: cmp.Or(t.d.MaxResult, int64(MaxResult)), in: in, vars: map[string]int64{}}
	c.Bytes = w.within(w.node(t.root))
	c.Work = add(c.Work, w.work)
	return c, w.err
}

// Check says what is wrong with a template, without running it.
func (d Dialect) Check(text string) error {
	t, err := d.Parse(text)
	if err != nil {
		return err
	}
	c, err := t.Cost(Input{Value: valueSize, Items: 1})
	if err == nil && c.Work > MaxWork {
		err = errors.New("it could take too long: call fewer functions on each other's results, and take shorter regular expressions")
	}
	return err
}

// walker works out how long the result of a node can be.
type walker struct {
	d     Dialect
	most  int64 // of a value
	in    Input
	work  int64
	vars  map[string]int64
	loops []parse.Node // what the loops around go over
	err   error        // the first
}

func (w *walker) fail(format string, args ...any) int64 {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
	return 0
}

// within refuses a value that could be too long: what is only kept in a variable, compared
// or counted takes as much memory as what is written.
func (w *walker) within(size int64) int64 {
	if size > w.most {
		w.fail("its result, or a value on the way, could be longer than %d MiB: give print, printf and reReplaceAll less of each other's results", w.most>>20)
	}
	return size
}

// add and mul stay where numbers are right.
func add(a, b int64) int64 { return min(a+b, largest) }
func mul(a, b int64) int64 {
	if a > 0 && b > largest/a {
		return largest
	}
	return a * b
}

func (w *walker) node(n parse.Node) int64 {
	switch n := n.(type) {
	case *parse.ListNode:
		var sum int64
		if n != nil {
			for _, x := range n.Nodes {
				sum = add(sum, w.node(x))
			}
		}
		return sum
	case *parse.TextNode:
		return int64(len(n.Text))
	case *parse.ActionNode:
		return w.node(n.Pipe)
	case *parse.PipeNode:
		return w.pipe(n)
	case *parse.IfNode:
		return w.branch(&n.BranchNode)
	case *parse.WithNode:
		return w.branch(&n.BranchNode)
	case *parse.RangeNode:
		return w.loop(n)
	case *parse.TemplateNode:
		if !w.d.Template {
			return w.fail("template is not available here")
		}
		return add(w.in.Value, w.node(n.Pipe))
	case *parse.StringNode:
		return int64(len(n.Text))
	case *parse.NumberNode, *parse.BoolNode, *parse.NilNode:
		return 64
	case *parse.VariableNode:
		if size, ok := w.vars[n.Ident[0]]; ok && len(n.Ident) == 1 {
			return size
		}
		return w.in.Value
	case *parse.ChainNode:
		return max(w.in.Value, w.node(n.Node))
	case *parse.IdentifierNode:
		return w.callOf(n.Ident, nil, nil)
	}
	return w.in.Value // a field, the dot
}

// branch: which way it goes is not known, so both count, and both may assign.
func (w *walker) branch(b *parse.BranchNode) int64 {
	return add(w.node(b.Pipe), add(w.node(b.List), w.node(b.ElseList)))
}

func (w *walker) loop(n *parse.RangeNode) int64 {
	over := n.Pipe.Cmds[0].Args[0]
	switch {
	case len(n.Pipe.Cmds) != 1 || !list(over):
		return w.fail("range is for labels, annotations and alerts: write what it goes over as in .Alerts, .Labels.SortedPairs or $labels")
	case len(w.loops) == maxNested:
		return w.fail("more than %d loops in each other", maxNested)
	case ofAlerts(over) && slices.ContainsFunc(w.loops, ofAlerts):
		return w.fail("a loop over alerts in a loop over alerts")
	}
	w.node(n.Pipe)
	w.loops = append(w.loops, over)
	before := w.work
	size := mul(w.in.Items, add(w.node(n.List), w.node(n.ElseList)))
	w.work = add(before, mul(w.in.Items, w.work-before))
	w.loops = w.loops[:len(w.loops)-1]
	return size
}

func idents(n parse.Node) []string {
	switch n := n.(type) {
	case *parse.FieldNode:
		return n.Ident
	case *parse.VariableNode:
		return n.Ident
	case *parse.ChainNode:
		return n.Field
	}
	return nil
}

// list says whether a loop may go over it: no number, which would be a loop of any length.
func list(n parse.Node) bool {
	for _, id := range idents(n) {
		for _, s := range []string{"Alerts", "Labels", "Annotations", "$labels", "$externalLabels"} {
			if strings.HasSuffix(id, s) && id != "TruncatedAlerts" {
				return true
			}
		}
	}
	return false
}

func ofAlerts(n parse.Node) bool { return slices.Contains(idents(n), "Alerts") }

func (w *walker) pipe(p *parse.PipeNode) int64 {
	if p == nil {
		return 0
	}
	var size int64
	for i, c := range p.Cmds {
		var args []int64
		for _, a := range c.Args[1:] {
			args = append(args, w.node(a))
		}
		if i > 0 {
			args = append(args, size)
		}
		if id, ok := c.Args[0].(*parse.IdentifierNode); ok {
			size = w.within(w.callOf(id.Ident, c.Args[1:], args))
			continue
		}
		size = w.node(c.Args[0])
		for _, a := range args { // a method that may give back what it was given
			size = add(size, a)
		}
		w.within(size)
	}
	for _, v := range p.Decl {
		if p.IsAssign && len(w.loops) > 0 {
			return w.fail("%s is assigned to in a loop; declare it there with :=", v.Ident[0])
		}
		if p.IsAssign { // or not, in a branch that is not taken
			size = max(size, w.vars[v.Ident[0]])
		}
		w.vars[v.Ident[0]] = size
	}
	if len(p.Decl) > 0 {
		return 0 // nothing is written
	}
	return size
}

var (
	// indexed, starred and very wide: what a format makes then has nothing to do with the length of its arguments.
	wild  = regexp.MustCompile(`%[^a-zA-Z%]*[\[*]|[0-9]{4,}`)
	short = []string{"humanize", "humanize1024", "humanizeDuration", "humanizePercentage", "humanizeTimestamp", "len", "eq", "ne", "lt", "le", "gt", "ge", "not", "match", "reMatch", "parseDuration", "toTime", "now", "since"}
	regex = []string{"reReplaceAll", "match", "reMatch"}
)

// shortSize is the longest result of those.
const shortSize = 64

func (w *walker) callOf(name string, nodes []parse.Node, args []int64) int64 {
	if name == "printf" {
		format, ok := parse.Node(nil), false
		if len(nodes) > 0 {
			format = nodes[0]
			_, ok = format.(*parse.StringNode)
		}
		switch {
		case !ok:
			return w.fail("printf wants its format in quotes, right after it")
		case wild.MatchString(format.(*parse.StringNode).Text):
			return w.fail("printf: a width of * or of more than three digits, or an argument by its number")
		}
	}
	before := w.work
	for i := range args { // what they are made of counted already
		w.work = add(w.work, args[i])
	}
	if slices.Contains(regex, name) {
		w.match(name, nodes, args)
	}
	size := w.call(name, args)
	if w.work = add(w.work, size); w.work-before > maxCall && size <= w.most { // else that is said
		return w.fail("%s could take too long: give it less of other functions' results, or a shorter regular expression", name)
	}
	return size
}

// match counts what a regular expression does: it is compiled at each call.
func (w *walker) match(name string, nodes []parse.Node, args []int64) {
	pattern, ok := "", false
	if len(nodes) > 0 {
		var s *parse.StringNode
		if s, ok = nodes[0].(*parse.StringNode); ok {
			pattern = s.Text
		}
	}
	if !ok {
		w.fail("%s wants its regular expression in quotes, right after it", name)
		return
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		w.fail("%s: %v", name, err)
		return
	}
	n := int64(regexcost.Program(re))
	if n <= 4*MaxRegex { // about so many; more is not compiled to be counted
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			w.fail("%s: %v", name, err)
			return
		}
		n = int64(len(prog.Inst))
	}
	if n > MaxRegex {
		w.fail("%s: the regular expression %s has %d instructions, want at most %d: repeat less", name, strconv.Quote(clip(pattern)), n, MaxRegex)
		return
	}
	w.work = add(w.work, add(workInstruction*n, mul(workMatch*n, args[len(args)-1])))
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

// call is how long the result of a function can be, from the lengths of its arguments.
func (w *walker) call(name string, args []int64) int64 {
	if why, ok := w.d.Refused[name]; ok {
		return w.fail("the template function %s is not available here: %s", name, why)
	}
	var sum int64
	for _, a := range args {
		sum = add(sum, a)
	}
	switch {
	case slices.Contains(short, name):
		return shortSize
	case name == "date": // a digit of the layout may become two
		return add(mul(2, sum), shortSize)
	case name == "print" || name == "println":
		return add(sum, int64(len(args))+1)
	case name == "printf": // %x and %q write each byte as several; every verb may be 999 wide
		return add(mul(6, sum), mul(1000, int64(len(args))))
	case name == "reReplaceAll" && len(args) == 3: // the replacement at every place, with what was there
		return mul(add(args[2], 1), add(args[1], 1))
	case name == "join" && len(args) == 2:
		return mul(add(args[1], 1), add(args[0], 1))
	case name == "and" || name == "or" || name == "index" || name == "slice" || name == "stringSlice":
		return add(sum, 1)
	}
	return add(mul(6, sum), w.in.Value)
}
