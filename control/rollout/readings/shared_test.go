package readings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/api/v1alpha1"
)

func testShared(late bool) *shared[int] {
	m := &figures{asked: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "a"}, []string{"source", "result"}), took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "b"}, []string{"source"})}
	return newShared[int]("test", 10*time.Second, 8*time.Second, late, m)
}

// What a source says slowly is there when it is asked the next time; what it said before
// serves until then, unless it has failed since or is too old.
func TestShared(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %t", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testShared(late)
				takes := time.Second
				var asked atomic.Int64
				var fails error
				get := func() string {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					takes, fails := takes, fails
					v, _, err := s.get(ctx, "k", func(ctx context.Context) (int, error) {
						n := int(asked.Add(1))
						select {
						case <-time.After(takes):
							return n, fails
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					})
					if err != nil {
						return err.Error()
					}
					return fmt.Sprint(v)
				}
				want := func(what, want string) {
					t.Helper()
					if got := get(); got != want {
						t.Errorf("%s: %q, want %q", what, got, want)
					}
				}
				old := func(n string) string {
					if late {
						return n
					}
					return "has not answered within 2s"
				}
				want("the first", "1")
				time.Sleep(8 * time.Second)
				want("while it is new", "1")
				time.Sleep(2 * time.Second)
				takes = 5 * time.Second
				want("a slow one", old("1"))
				want("it is still under way", old("1"))
				time.Sleep(time.Second)
				want("when it has come", "2")
				time.Sleep(10 * time.Second)
				takes, fails = time.Second, errors.New("broken")
				want("a failure", "broken")
				time.Sleep(10 * time.Second)
				takes, fails = time.Hour, nil
				want("one that hangs, after a failure", "has not answered within 2s")
				time.Sleep(7 * time.Second)
				want("its time is up", context.DeadlineExceeded.Error())
				takes = 0
				time.Sleep(10 * time.Second)
				want("again", "5")
				takes = time.Hour
				time.Sleep(fresh)
				want("what is too old", "has not answered within 2s")
				if asked.Load() != 6 {
					t.Errorf("asked %d times", asked.Load())
				}
				time.Sleep(forgetAfter + 10*time.Second)
				s.mu.Lock()
				s.sweepLocked(time.Now())
				if len(s.of) != 0 {
					t.Error("what nobody asks for is kept")
				}
				s.mu.Unlock()
			})
		})
	}
}

func TestVerdict(t *testing.T) {
	for body, want := range map[string]v1alpha1.GateVerdict{
		"": v1alpha1.GatePass, " \n": v1alpha1.GatePass, `{"verdict":"pass"}`: v1alpha1.GatePass, `{"verdict":"wait","message":7}`: v1alpha1.GateWait, `{"verdict":"fail","x":{}}`: v1alpha1.GateFail,
		`{}`: "", `ok`: "", `null`: "", `[]`: "", `{"verdict":"Pass"}`: "", `{"VERDICT":"pass"}`: "", `{"verdict":true}`: "", `{"verdict":"pass"} x`: "", `{"verdict":""}`: "", `{"verdict":null}`: "",
	} {
		got, err := verdict(200, []byte(body))
		if got.Verdict != want || (err != nil) != (want == "") {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
	}
	for _, status := range []int{100, 199, 301, 404, 500} {
		if got, err := verdict(status, nil); err == nil || got.Verdict != "" {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

// Nothing but an empty body and the very word passes.
func FuzzVerdict(f *testing.F) {
	f.Add(200, []byte(`{"verdict":"pass","message":"\u2028x"}`))
	f.Add(204, []byte(nil))
	f.Add(500, []byte(`{"verdict":"fail"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		out, err := verdict(status, body)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x00") || len(err.Error()) > 500 {
				t.Errorf("%q", err)
			}
			return
		}
		if status/100 != 2 || out.Text == "" || strings.ContainsAny(out.Text, "\n\r\x00") || len(out.Text) > 500 {
			t.Errorf("%d %q: %+v", status, body, out)
		}
		if out.Verdict == v1alpha1.GatePass && strings.TrimSpace(string(body)) != "" && !strings.Contains(string(body), `pass`) && !strings.Contains(string(body), `\u`) {
			t.Errorf("%q passes", body)
		}
	})
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"site":"a"},"value":[1,"2"]}]}}`))
	f.Add(200, []byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`))
	f.Add(400, []byte(`{"status":"error","error":"x"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		v, err := decodeValue(status, body)
		if err != nil {
			return
		}
		if status != 200 || v.one != nil && (len(v.sites) > 0 || !finite(*v.one)) {
			t.Errorf("%d %q: %+v", status, body, v)
		}
		for site, x := range v.sites {
			if site == "" || !finite(x) {
				t.Errorf("%q: %q %v", body, site, x)
			}
		}
	})
}
