package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/remotewrite"
)

// TestBatchesAreUsedAgain: what one appender gathered, kept or given up, is not in the
// next one's batch, and a series that has several samples has its own.
func TestBatchesAreUsedAgain(t *testing.T) {
	var got []string
	e := open(t, Options{Tenant: fleet.PlatformTenant, ExternalLabels: labels.FromStrings("regional", "one"), Forward: func(_ string, series []remotewrite.Series) error {
		for _, s := range series {
			got = append(got, fmt.Sprint(s.Labels, s.Samples))
		}
		return nil
	}})
	at := time.Now().Truncate(time.Second).UnixMilli()
	push := func(keep bool, names ...string) {
		t.Helper()
		got = nil
		app := e.Appendable().Appender(context.Background())
		at += 10
		for _, name := range names {
			for i := range int64(3) {
				if _, err := app.Append(0, labels.FromStrings("__name__", name), at+i, float64(i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		end := app.Rollback
		if keep {
			end = app.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(names ...string) {
		t.Helper()
		var w []string
		for _, name := range names {
			w = append(w, fmt.Sprint(labels.FromStrings("__name__", name, "regional", "one"), []remotewrite.Sample{{T: at, V: 0}, {T: at + 1, V: 1}, {T: at + 2, V: 2}}))
		}
		if !slices.Equal(got, w) {
			t.Errorf("forwarded\n%s\nwant\n%s", got, w)
		}
	}
	push(true, "a", "b", "c")
	want("a", "b", "c")
	push(false, "d", "e")
	want()
	push(true, "f")
	want("f")
	push(true)
	want()
}
