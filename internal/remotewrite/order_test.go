package remotewrite

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// scrapes queues n records of a series each, of so many targets in turn; the lane is
// the target's.
func (r *rig) scrapes(targets, from, n int) {
	r.Helper()
	for i := from; i < from+n; i++ {
		for target := range targets {
			s := Series{Labels: labels.FromStrings("__name__", "m", "target", fmt.Sprint(target)), Samples: []Sample{{T: int64(1000 + i), V: float64(i)}}}
			if _, err := r.spool.Append(Encode("acme", uint32(target), []Series{s})); err != nil {
				r.Fatal(err)
			}
		}
	}
}

// arrived returns the times of each series' samples in the order in which the
// receiver took them.
func (r *receiver) arrived(taken func(i int) bool) map[string][]int64 {
	out := map[string][]int64{}
	for i, req := range r.requests() {
		if !taken(i) {
			continue
		}
		for _, s := range req.series {
			for _, p := range s.Samples {
				out[s.Labels.Get("target")] = append(out[s.Labels.Get("target")], p.T)
			}
		}
	}
	return out
}

// TestOrderIsKeptOverFailures has a receiver that fails now and then, by status, by
// the network and by Retry-After, under one lane and under many.
func TestOrderIsKeptOverFailures(t *testing.T) {
	for _, concurrency := range []int{1, 2, 4} {
		for _, samples := range []int{1, 0} {
			t.Run(fmt.Sprintf("concurrency %d, samples %d", concurrency, samples), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, func(o *SenderOptions) { o.Concurrency, o.MaxSamples = concurrency, samples })
					defer r.stop()
					r.recv.hold = 10 * time.Millisecond
					taken := map[int]bool{}
					for i := range 400 {
						a := answer{code: 204}
						switch i % 7 {
						case 1, 2:
							a = answer{code: 503}
						case 4:
							a = answer{err: errors.New("reset")}
						case 5:
							if i%3 == 0 {
								a = answer{code: 429, header: http.Header{"Retry-After": {"2"}}}
							}
						}
						taken[i] = a.code == 204
						r.recv.answers = append(r.recv.answers, a)
					}
					r.scrapes(3, 0, 30)
					settle(3 * time.Second)
					r.scrapes(3, 30, 10)
					settle(20 * time.Minute)
					if st := r.spool.Stats(); st.Pending != 0 {
						t.Fatalf("stats %+v, %d requests", st, len(r.recv.requests()))
					}
					for target, times := range r.recv.arrived(func(i int) bool { return i >= 400 || taken[i] }) {
						if len(times) != 40 {
							t.Errorf("target %s: %d samples", target, len(times))
						}
						for i := range times {
							if times[i] != int64(1000+i) {
								t.Fatalf("target %s: sample %d came as number %d: %v", target, times[i]-1000, i, times)
							}
						}
					}
				})
			})
		}
	}
}

// TestBacklogGoesInFewRequests: the way there and back must not bound how fast a
// backlog drains.
func TestBacklogGoesInFewRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples = 0 })
		defer r.stop()
		r.recv.setAlways(&answer{code: 503})
		for i := range 400 { // ten minutes of ten targets, every 15 s
			if _, err := r.spool.Append(Encode("acme", 0, batch(200, int64(i/10)*15_000))); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Minute)
		before := len(r.recv.requests())
		r.recv.setAlways(nil)
		settle(10 * time.Minute)
		got := r.recv.requests()[before:]
		if len(got) > 12 || r.spool.Stats().Pending != 0 {
			t.Errorf("%d requests for 80,000 samples, %+v", len(got), r.spool.Stats())
		}
		n := 0
		for _, req := range got {
			n += countSamples(req.series)
			if len(req.series) != 200 {
				t.Errorf("%d series in a request of 200", len(req.series))
			}
		}
		if n != 80_000 {
			t.Errorf("%d samples", n)
		}
	})
}

// TestARefusedRequestFallsApart: of records that were put together only that which
// the receiver refuses is lost.
func TestARefusedRequestFallsApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples = 0 })
		defer r.stop()
		r.recv.refuse = func(series []Series) *answer {
			for _, s := range series {
				for _, p := range s.Samples {
					if p.T == 1013 {
						return &answer{code: 400, body: "poison"}
					}
				}
			}
			if len(series) > 0 && countSamples(series) > 40 {
				return &answer{code: 413}
			}
			return nil
		}
		r.recv.setAlways(&answer{code: 503})
		r.scrapes(1, 0, 100)
		settle(time.Minute)
		r.recv.setAlways(nil)
		settle(time.Minute)
		if st := r.spool.Stats(); st.Pending != 0 || r.sender.Status().FailedSamples != 1 || r.sender.Status().SentSamples != 99 {
			t.Errorf("%+v %+v", st, r.sender.Status())
		}
	})
}

// TestASlowLineGetsSmallerRequests: what does not arrive in time is sent in parts.
func TestASlowLineGetsSmallerRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.MaxSamples, o.Timeout = 0, 10*time.Second })
		defer r.stop()
		r.recv.delay = func(series []Series) time.Duration { return time.Duration(countSamples(series)) * 3 * time.Second }
		r.recv.setAlways(&answer{code: 503})
		r.scrapes(1, 0, 60)
		settle(10 * time.Minute)
		r.recv.setAlways(nil)
		settle(2 * time.Hour)
		if st := r.spool.Stats(); st.Pending != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestOneLaneHoldsUpNoOther while its receiver's answers take long.
func TestOneLaneHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.Concurrency, o.MaxSamples = 2, 0 })
		defer r.stop()
		r.recv.delay = func(series []Series) time.Duration {
			if series[0].Labels.Get("target") == "0" {
				return 20 * time.Second
			}
			return 0
		}
		r.scrapes(2, 0, 50)
		settle(10 * time.Second)
		if n := len(r.recv.arrived(func(int) bool { return true })["1"]); n != 50 {
			t.Errorf("%d of the other lane's samples", n)
		}
	})
}

// TestLittleIsHeldInMemory while the receiver is down, whatever waits on the disk.
func TestLittleIsHeldInMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *SenderOptions) { o.Concurrency, o.MaxSamples = 2, 0 })
		defer r.stop()
		r.recv.setAlways(&answer{code: 503})
		size := 0
		for i := range 500 {
			rec := Encode("acme", uint32(i), batch(500, int64(i)*15_000))
			size = len(rec)
			if _, err := r.spool.Append(rec); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Minute)
		if st := r.spool.Stats(); st.InFlight*size > 600<<10 || st.InFlight < 2 {
			t.Errorf("%d records of %d bytes are held", st.InFlight, size)
		}
		r.recv.setAlways(nil)
		settle(10 * time.Minute)
		if st := r.spool.Stats(); st.Pending != 0 {
			t.Errorf("%+v", st)
		}
	})
}
