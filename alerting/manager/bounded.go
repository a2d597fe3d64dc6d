package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	texttemplate "text/template"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/alertmanager/types"
	"github.com/prometheus/client_golang/prometheus"
	commoncfg "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
)

const (
	// maxAlertsNotified is how many alerts of a group one notification has.
	maxAlertsNotified = 500
	// maxNotification bounds, in bytes, the labels and annotations of a notification's alerts
	// together with what all of the receiver's templates make of them. Escaping for JSON,
	// HTML or mail comes on top, and is six bytes for one at worst.
	maxNotification = 1 << 20
	// leftOutAnnotation is set on the alerts of a notification that leaves out others.
	leftOutAnnotation = "muster_left_out"
)

// bounded is an integration that is handed as many alerts of a group as its notification
// has room for: Alertmanager renders into buffers without a limit, for all tenants in one
// process, and what a template makes of a group is not known before it ran. So it runs
// first into a writer that counts and keeps nothing.
//
// It stands behind deduplication: the log of notifications remembers the whole group.
type bounded struct {
	in      notify.Integration
	tmpl    *template.Template
	text    *texttemplate.Template // tmpl's own, to run it into a writer
	sources []string               // the texts with templates in the integration's configuration
	log     *slog.Logger
	leftOut prometheus.Counter
}

func newBounded(in notify.Integration, conf any, p *prepared, log *slog.Logger, leftOut prometheus.Counter) *bounded {
	b := &bounded{in: in, tmpl: p.tmpl, text: p.text, log: log, leftOut: leftOut}
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
	for n := min(len(alerts), maxAlertsNotified); ; n /= 2 {
		if n < len(alerts) {
			chosen = choose(chosen, n)
			kept = told(chosen, len(alerts))
		}
		fits, err := b.fits(ctx, kept)
		if err != nil {
			return false, err
		}
		if fits {
			break
		}
		if n <= 1 {
			return false, fmt.Errorf("one alert alone makes a notification of more than %d KiB: shorten its templates, or the alert's annotations", maxNotification>>10)
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

// fits says whether a notification of the alerts is within maxNotification. A template
// that fails counts as far as it came: the integration comes no further.
func (b *bounded) fits(ctx context.Context, alerts []*types.Alert) (bool, error) {
	m := &meter{left: maxNotification}
	for _, a := range alerts {
		m.take(sizeOf(a.Labels) + sizeOf(a.Annotations) + len(a.GeneratorURL))
	}
	if m.left < 0 || len(b.sources) == 0 {
		return m.left >= 0, nil
	}
	set, err := b.text.Clone()
	if err != nil {
		return false, err
	}
	data := notify.GetTemplateData(ctx, b.tmpl, alerts, b.log)
	for _, s := range b.sources {
		if t, err := set.New("").Option("missingkey=zero").Parse(s); err == nil {
			_ = t.Execute(m, data)
		}
		if m.left < 0 {
			return false, nil
		}
	}
	return true, nil
}

// meter counts what is written, up to its bound.
type meter struct{ left int }

var errFull = errors.New("too long")

func (m *meter) take(n int) { m.left = max(m.left-n, -1) }

func (m *meter) Write(b []byte) (int, error) {
	if m.take(len(b)); m.left < 0 {
		return 0, errFull
	}
	return len(b), nil
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
