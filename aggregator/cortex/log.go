package cortex

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	kitlog "github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/weaveworks/common/logging"

	"muster.dev/muster/internal/obs"
)

// bridge writes go-kit log lines to slog. Cortex tells of every block and every
// ring change at info, which is a debugger's reading, so info becomes debug; and
// it warns anew for every refused push and every query of a young tenant, so of
// lines that begin alike one a minute stays a warning and the others become debug.
type bridge struct {
	to     *slog.Logger
	warned *obs.Every // by the beginning of a line
}

func newBridge(to *slog.Logger) *bridge { return &bridge{to, obs.NewEvery(repeatEvery)} }

const (
	repeatEvery = time.Minute
	alike       = 20 // bytes
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
		leftOut, ok := b.warned.Pass(msg[:min(alike, len(msg))], time.Now())
		switch {
		case !ok:
			lvl = slog.LevelDebug
		case leftOut > 0:
			attrs = append(attrs, slog.Int("left_out", leftOut))
		}
	}
	b.to.LogAttrs(context.Background(), lvl, "cortex: "+msg, attrs...)
	return nil
}

func serverLog(l kitlog.Logger) logging.Interface { return logging.GoKit(l) }
