package cortex

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	kitlog "github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/weaveworks/common/logging"
)

// bridge writes go-kit log lines to slog. Cortex tells of every block and every
// ring change at info, which is a debugger's reading, so info becomes debug; and
// it warns anew for every refused push and every query of a young tenant, so of
// lines that begin alike one a minute stays a warning and the others become debug.
type bridge struct {
	to *slog.Logger

	mu   sync.Mutex
	seen map[string]*repeats
}

type repeats struct {
	last    time.Time
	skipped int
}

const (
	repeatEvery = time.Minute
	alike       = 20 // bytes
	maxSeen     = 500
)

// Log implements go-kit's Logger; it never fails.
func (b *bridge) Log(kv ...any) error {
	lvl := slog.LevelDebug
	msg := "cortex"
	attrs := make([]slog.Attr, 0, len(kv)/2+1)
	for i := 0; i+1 < len(kv); i += 2 {
		v := kv[i+1]
		if val, ok := v.(kitlog.Valuer); ok {
			v = val()
		}
		switch key := fmt.Sprint(kv[i]); key {
		case "level":
			switch v {
			case level.ErrorValue():
				lvl = slog.LevelError
			case level.WarnValue():
				lvl = slog.LevelWarn
			}
		case "msg":
			msg = fmt.Sprint(v)
		case "ts", "caller":
		default:
			attrs = append(attrs, slog.Any(key, v))
		}
	}
	if lvl > slog.LevelDebug {
		first, skipped := b.first(msg)
		switch {
		case !first:
			lvl = slog.LevelDebug
		case skipped > 0:
			attrs = append(attrs, slog.Int("similar_before", skipped))
		}
	}
	b.to.LogAttrs(context.Background(), lvl, "cortex: "+msg, attrs...)
	return nil
}

// first reports whether no line like this was let through in the last minute, and
// how many were held back before it.
func (b *bridge) first(msg string) (bool, int) {
	key := msg[:min(alike, len(msg))]
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil || len(b.seen) > maxSeen {
		b.seen = map[string]*repeats{}
	}
	r := b.seen[key]
	if r == nil {
		r = &repeats{}
		b.seen[key] = r
	}
	if now.Sub(r.last) < repeatEvery {
		r.skipped++
		return false, 0
	}
	skipped := r.skipped
	*r = repeats{last: now}
	return true, skipped
}

func serverLog(l kitlog.Logger) logging.Interface { return logging.GoKit(l) }
