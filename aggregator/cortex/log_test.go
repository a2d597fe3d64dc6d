package cortex

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log/level"
)

func TestLogBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := newBridge(slog.New(slog.NewTextHandler(&out, nil)))
		_ = level.Info(b).Log("msg", "uploading block", "ts", "x")
		_ = level.Warn(b).Log("msg", "push refused by limit", "err", errors.New("too many"), "caller", "x.go:1")
		_ = level.Warn(b).Log("msg", "push refused by limit")
		_ = level.Error(b).Log("msg", "disk is full")
		time.Sleep(2 * repeatEvery)
		_ = level.Warn(b).Log("msg", "push refused by limit")
		got := out.String()
		for _, want := range []string{`level=WARN msg="cortex: push refused by limit" err="too many"`, `level=ERROR msg="cortex: disk is full"`, "left_out=1"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if n := strings.Count(got, "\n"); n != 3 || strings.Contains(got, "uploading") || strings.Contains(got, "caller") {
			t.Errorf("%d lines:\n%s", n, got)
		}
	})
}
