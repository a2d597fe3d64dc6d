package embedded

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit/powercut"
	"muster.dev/muster/regional/logs/store"
)

// TestPowerLoss cuts the power after so many batches, over three days of a new tenant:
// the log queue has removed what Write called stored, so it has to be here, on whatever file
// system.
func TestPowerLoss(t *testing.T) {
	for _, batches := range []int{1, 2, 9} {
		t.Run(fmt.Sprint(batches), func(t *testing.T) {
			dir := t.TempDir()
			powercut.Run(t, dir, func(dir string) {
				s, err := Open(Options{Dir: filepath.Join(dir, "made", "now")})
				if err != nil {
					t.Fatal(err)
				}
				for n := range batches {
					records := make([]store.Record, 40)
					for i := range records {
						records[i] = record(fmt.Sprintf("%d-%d", n, i))
						records[i].Timestamp = records[i].Timestamp.Add(-time.Duration(i%3) * 24 * time.Hour)
					}
					if res, err := s.Write(context.Background(), records); err != nil || res.Stored != len(records) {
						t.Fatalf("%+v, %v", res, err)
					}
				}
				if _, err := s.PutState(context.Background(), "rules", []byte("position"), ""); err != nil {
					t.Fatal(err)
				}
			})
			s := open(t, Options{Dir: filepath.Join(dir, "made", "now")})
			if n := total(t, s); n != int64(40*batches) {
				t.Errorf("%d records are left of %d", n, 40*batches)
			}
			if v, _, err := s.GetState(t.Context(), "rules"); string(v) != "position" || err != nil {
				t.Errorf("state: %q, %v", v, err)
			}
			mustWrite(t, s, record("later"))
		})
	}
}
