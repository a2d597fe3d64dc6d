package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
)

// quiet lowers klog's chatter: what the API server calls information is debugging
// to an operator of Muster, and what it calls an error while it starts or stops is
// what it waits for. A start or stop that fails says so by itself.
type quiet struct {
	slog.Handler
	up *atomic.Bool // neither starting nor stopping
}

func newQuiet(h slog.Handler) quiet { return quiet{h, new(atomic.Bool)} }

func (q quiet) level(l slog.Level) slog.Level {
	switch {
	case l < slog.LevelWarn:
		return slog.LevelDebug
	case !q.up.Load():
		return slog.LevelInfo
	default:
		return l
	}
}

// Enabled implements slog.Handler.
func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.level(l))
}

// Handle implements slog.Handler.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = q.level(r.Level)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a), q.up} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(n string) slog.Handler { return quiet{q.Handler.WithGroup(n), q.up} }

// zapToSlog hands etcd's errors to slog. Its warnings are about a slow disk, again
// and again; the metrics tell that better.
type zapToSlog struct {
	log    *slog.Logger
	fields []zapcore.Field
	shared *zapShared
}

type zapShared struct {
	ending atomic.Bool
	last   atomic.Pointer[string] // what etcd said before it gave up
}

// Enabled implements zapcore.LevelEnabler.
func (z *zapToSlog) Enabled(l zapcore.Level) bool {
	return l >= zapcore.ErrorLevel && (!z.shared.ending.Load() || l > zapcore.ErrorLevel)
}

// With implements zapcore.Core.
func (z *zapToSlog) With(f []zapcore.Field) zapcore.Core {
	return &zapToSlog{log: z.log, fields: slices.Concat(z.fields, f), shared: z.shared}
}

// Check implements zapcore.Core.
func (z *zapToSlog) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) {
		return c.AddCore(e, z)
	}
	return c
}

// Write implements zapcore.Core.
func (z *zapToSlog) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(z.fields, fields) {
		f.AddTo(values)
	}
	if e.Level > zapcore.ErrorLevel {
		said := e.Message
		if err, ok := values.Fields["error"]; ok {
			said = fmt.Sprintf("%s: %v", said, err)
		}
		z.shared.last.Store(&said)
		return nil // it becomes an error of the start, or the panic's own message
	}
	attrs := make([]slog.Attr, 0, len(values.Fields))
	for k, v := range values.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	slices.SortFunc(attrs, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	z.log.LogAttrs(context.Background(), slog.LevelError, e.Message, attrs...)
	return nil
}

// Sync implements zapcore.Core.
func (z *zapToSlog) Sync() error { return nil }

// fatal is what etcd gave up with; nil: it did not.
func (z *zapToSlog) fatal() error {
	if said := z.shared.last.Load(); said != nil {
		return errors.New(*said)
	}
	return nil
}
