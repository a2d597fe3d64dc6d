package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	texttemplate "text/template"
	"text/template/parse"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus"
	commoncfg "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
)

const (
	// maxAlertsNotified is how many alerts of a group one notification has.
	maxAlertsNotified = 500
	// maxNotification bounds, in bytes, the labels and annotations of a notification's alerts
	// together with what all of the receiver's templates make of them. Escaping for JSON,
	// HTML or mail comes on top, and is six bytes for one at worst.
	maxNotification = 1 << 20
	// renderWithin bounds the processor's time that all templates of a notification take.
	renderWithin = 400 * time.Millisecond
	// leftOutAnnotation is set on the alerts of a notification that leaves out others.
	leftOutAnnotation = "muster_left_out"
)

// bounded is an integration that is handed as many alerts of a group as its notification
// has room for: Alertmanager renders into buffers without a limit, for all tenants in one
// process, and what a template makes of a group is not known before it ran. So it runs
// first into a writer that counts and keeps nothing, and that ends what takes too long.
//
// It stands behind deduplication: the log of notifications remembers the whole group.
type bounded struct {
	in      notify.Integration
	tmpl    *template.Template
	text    *texttemplate.Template // tmpl's own, to run it into a writer
	sources []string               // the texts with templates in the integration's configuration
	log     *slog.Logger
	leftOut prometheus.Counter
	within  time.Duration // renderWithin, but for tests
}

func newBounded(in notify.Integration, conf any, p *prepared, log *slog.Logger, leftOut prometheus.Counter) *bounded {
	b := &bounded{in: in, tmpl: p.tmpl, text: p.text, log: log, leftOut: leftOut, within: renderWithin}
	b.collect(reflect.ValueOf(conf))
	return b
}

var httpConfig = reflect.TypeFor[*commoncfg.HTTPClientConfig]()

// collect gathers every text that could be a template, whatever the type of receiver. One
// too many costs a little time; one too few would be a hole.
func (b *bounded) collect(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); strings.Contains(s, "{{") {
			b.sources = append(b.sources, s)
		}
	case reflect.Pointer, reflect.Interface:
		if v.Type() != httpConfig { // certificates and the like
			b.collect(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			b.collect(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				b.collect(v.Index(i))
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			b.collect(it.Key())
			b.collect(it.Value())
		}
	}
}

// Notify implements notify.Notifier.
func (b *bounded) Notify(ctx context.Context, alerts ...*types.Alert) (bool, error) {
	chosen, kept := alerts, alerts
	for n := min(len(alerts), maxAlertsNotified); ; {
		if n < len(alerts) {
			chosen = choose(chosen, n)
			kept = told(chosen, len(alerts))
		}
		over, err := b.measure(ctx, kept)
		if err != nil {
			return false, err
		}
		if over == nil {
			break
		}
		if n <= 1 {
			return false, fmt.Errorf("one alert alone makes a notification %w: shorten its templates, or the alert's annotations", over)
		}
		if n /= 2; errors.Is(over, errSlow) { // each try takes as long as it may
			n = max(n/4, 1)
		}
	}
	retry, err := b.in.Notify(ctx, kept...)
	if n := len(alerts) - len(kept); n > 0 && err == nil {
		b.leftOut.Add(float64(n))
		receiver, _ := notify.ReceiverName(ctx)
		b.log.Warn("a notification has not room for all alerts of its group", "receiver", receiver, "integration", b.in.Name(), "alerts", len(alerts), "left_out", n)
	}
	return retry, err
}

// measure returns what is too much about a notification of the alerts: errFull, errSlow or
// nil. A template that fails counts as far as it came: the integration comes no further.
func (b *bounded) measure(ctx context.Context, alerts []*types.Alert) (over, _ error) {
	m := &meter{left: maxNotification}
	for _, a := range alerts {
		m.take(sizeOf(a.Labels) + sizeOf(a.Annotations) + len(a.GeneratorURL))
	}
	if m.over != nil || len(b.sources) == 0 {
		return m.over, nil
	}
	set, err := b.text.Clone()
	if err != nil {
		return nil, err
	}
	data := notify.GetTemplateData(ctx, b.tmpl, alerts, b.log)
	runtime.LockOSThread() // whose time it is
	defer runtime.UnlockOSThread()
	m.until = threadTime() + b.within
	for _, s := range b.sources {
		if t, err := set.New("").Option("missingkey=zero").Parse(s); err == nil {
			interruptible(t.Root)
			_ = t.Execute(m, data)
		}
		if m.over != nil {
			return m.over, nil
		}
	}
	return nil, nil
}

// meter counts what is written, and the processor's time that the thread takes, up to
// their bounds.
type meter struct {
	left   int
	until  time.Duration // as threadTime
	looked time.Time
	over   error // errFull or errSlow
}

var (
	errFull = fmt.Errorf("of more than %d KiB", maxNotification>>10)
	errSlow = fmt.Errorf("for longer than %s", renderWithin)
)

func (m *meter) take(n int) {
	if m.left -= n; m.left < 0 {
		m.over = errFull
	}
}

// Write implements io.Writer; its error ends a template.
func (m *meter) Write(b []byte) (int, error) {
	// The thread's time takes a system call, and is never ahead of the clock.
	if now := time.Now(); now.Sub(m.looked) > time.Millisecond {
		if m.looked = now; threadTime() > m.until {
			m.over = errSlow
			return 0, m.over
		}
	}
	if m.take(len(b)); m.over != nil {
		return 0, m.over
	}
	return len(b), nil
}

// threadTime is the processor's time that this thread has taken. The time of day would have
// a busy machine leave out alerts.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// interruptible has a template write before each of its steps, be it nothing: a writer's
// error is all that ends one, and what loops and compares writes nothing by itself.
func interruptible(n parse.Node) {
	branch := func(b *parse.BranchNode) {
		interruptible(b.List)
		interruptible(b.ElseList)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		var nodes []parse.Node
		for _, x := range n.Nodes {
			interruptible(x)
			nodes = append(nodes, &parse.TextNode{NodeType: parse.NodeText, Pos: x.Position()}, x)
		}
		n.Nodes = nodes
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	}
}

// choose keeps n alerts: the worst, and of these the oldest, so that a group's next
// notifications speak of the same ones. What fires goes before what ended, so that a group
// that fires never looks resolved; but up to half of the room is for what ended, because a
// receiver may wait to hear of it, and it is told once. The order stays; it also decides
// between equals, and the dispatcher's is by labels.
func choose(alerts []*types.Alert, n int) []*types.Alert {
	ranked := slices.Clone(alerts)
	slices.SortStableFunc(ranked, func(a, b *types.Alert) int {
		return cmp.Or(cmp.Compare(severity(a), severity(b)), a.StartsAt.Compare(b.StartsAt))
	})
	ended := 0
	for _, a := range alerts {
		if a.Resolved() {
			ended++
		}
	}
	firing := min(len(alerts)-ended, max((n+1)/2, n-ended))
	room := map[bool]int{false: firing, true: n - firing}
	keep := make(map[*types.Alert]bool, n)
	for _, a := range ranked {
		if is := a.Resolved(); room[is] > 0 {
			room[is]--
			keep[a] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(alerts), func(a *types.Alert) bool { return !keep[a] })
}

// severity is a rank, 0 the worst.
func severity(a *types.Alert) int {
	switch a.Labels["severity"] {
	case "critical":
		return 0
	case "warning":
		return 1
	case "info":
		return 2
	}
	return 3
}

// told is copies of the alerts that say, each, how many others there are: so it is among
// their common annotations. The originals are the dispatcher's.
func told(alerts []*types.Alert, of int) []*types.Alert {
	text := model.LabelValue(fmt.Sprintf("%d of %d alerts of this group are left out", of-len(alerts), of))
	out := make([]*types.Alert, len(alerts))
	for i, a := range alerts {
		c := *a
		if c.Annotations = maps.Clone(a.Annotations); c.Annotations == nil {
			c.Annotations = model.LabelSet{}
		}
		c.Annotations[leftOutAnnotation] = text
		out[i] = &c
	}
	return out
}

// single takes a receiver apart into receivers of one integration each, and hands on each
// with that integration's configuration and its place among those of its type.
func single(rcv config.Receiver, each func(one config.Receiver, conf any, i int) error) error {
	all := reflect.ValueOf(rcv)
	for f := range all.NumField() {
		list := all.Field(f)
		if list.Kind() != reflect.Slice {
			continue
		}
		for i := range list.Len() {
			one := config.Receiver{Name: rcv.Name}
			reflect.ValueOf(&one).Elem().Field(f).Set(list.Slice(i, i+1))
			if err := each(one, list.Index(i).Interface(), i); err != nil {
				return err
			}
		}
	}
	return nil
}
