package turns

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// begin takes a turn in the background, which comes over the channel.
func begin(t *testing.T, p *Processors, c Class) <-chan *Turn {
	began := make(chan *Turn, 1)
	go func() {
		turn, err := p.Begin(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		began <- turn
	}()
	synctest.Wait()
	return began
}

// Long work lets another tenant go on after a stretch, and goes on itself when that one is
// through: it had more of late.
func TestLongWorkGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(3)
		p.slots.overdue = 0 // who is not heard of is another test's
		var long [2]*Turn
		for i := range long {
			var err error
			if long[i], err = p.Begin(t.Context(), acme); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(stretch)
		for _, x := range long {
			if err := x.Pass(t.Context()); err != nil || x.release == nil {
				t.Fatalf("nobody waits: %v", err)
			}
		}
		began := begin(t, p, umbrella)
		if err := long[0].Pass(t.Context()); err != nil {
			t.Fatal(err) // it has only just begun its stretch
		}
		if len(began) > 0 {
			t.Fatal("tenants have all processors")
		}
		time.Sleep(stretch)
		again := make(chan error, 1)
		go func() { again <- long[0].Pass(t.Context()) }()
		calm := <-began
		synctest.Wait()
		if len(again) > 0 {
			t.Fatal("it did not give way")
		}
		time.Sleep(stretch)
		if err := calm.Pass(t.Context()); err != nil || calm.release == nil || len(again) > 0 {
			t.Errorf("who had less gave way: %v", err)
		}
		calm.End()
		calm.End()
		if err := <-again; err != nil {
			t.Error(err)
		}
		// One that has to end while it waits has nothing to give back.
		if err := long[1].Pass(t.Context()); err != nil {
			t.Error(err)
		}
		go func() {
			if calm, err := p.Begin(t.Context(), umbrella); err == nil {
				defer calm.End()
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), stretch+time.Millisecond)
		defer cancel()
		time.Sleep(stretch)
		if err := long[1].Pass(ctx); err == nil {
			t.Error("it goes on after its deadline")
		}
		long[1].End()
		long[0].End()
		time.Sleep(2 * time.Second)
		if p, n, w := p.Use(); p+n+w != 0 {
			t.Errorf("left: %d, %d, %d", p, n, w)
		}
	})
}

// The platform has a processor when tenants have all theirs, and goes first; it lets
// tenants go on too.
func TestThePlatformHasAProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(2)
		tenant, first := <-begin(t, p, acme), <-begin(t, p, platform)
		second := begin(t, p, platform)
		time.Sleep(stretch)
		if !p.slots.wanted(acme, tenant.slot) {
			t.Error("a tenant need not give way to the platform")
		}
		tenant.End()
		other := begin(t, p, acme)
		time.Sleep(10 * overdue)
		if len(second) != 1 || len(other) != 0 {
			t.Fatalf("platform: %d, tenant: %d", len(second), len(other))
		}
		again := make(chan error)
		go func() { again <- first.Pass(t.Context()) }()
		(<-other).End() // the platform keeps nobody waiting for ever
		if err := <-again; err != nil {
			t.Error(err)
		}
		first.End()
		(<-second).End()
	})
}

// What can't pass holds up its own tenant, and others for two stretches.
func TestWhatCanNotPassIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(1)
		long := <-begin(t, p, acme)
		own, calm, third := begin(t, p, acme), begin(t, p, umbrella), begin(t, p, Class{Tenant: "third"})
		time.Sleep(overdue - time.Millisecond)
		if len(own)+len(calm)+len(third) > 0 {
			t.Fatal("nobody may go yet")
		}
		time.Sleep(10 * overdue)
		if len(own) != 0 || len(calm)+len(third) != 1 {
			t.Fatalf("own: %d, of two others: %d", len(own), len(calm)+len(third))
		}
		long.End()
		synctest.Wait()
		if len(own) != 0 {
			t.Error("tenants have more than theirs, and one more began")
		}
		for range 2 { // in which order is chance
			select {
			case x := <-calm:
				x.End()
			case x := <-third:
				x.End()
			}
			synctest.Wait()
		}
		(<-own).End()
	})
}

// While something can't pass, the others give way to each other as they do without it: who
// waits goes on as soon as one of them passes.
func TestBesideWhatCanNotPassOthersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(2) // of which tenants have one
		long := <-begin(t, p, acme)
		defer long.End()
		first := begin(t, p, umbrella)
		time.Sleep(overdue)
		synctest.Wait()
		if len(first) != 1 {
			t.Fatal("it waits for what can't pass")
		}
		one := <-first
		second := begin(t, p, umbrella)
		for range 5 {
			time.Sleep(stretch)
			at := time.Now()
			passed := make(chan error, 1)
			go func() { passed <- one.Pass(t.Context()) }()
			synctest.Wait()
			if len(second) != 1 || !time.Now().Equal(at) {
				t.Fatal("nobody goes on where one gave way")
			}
			two := <-second
			time.Sleep(stretch)
			again := make(chan *Turn, 1)
			go func() {
				if err := two.Pass(t.Context()); err != nil {
					t.Error(err)
				}
				again <- two
			}()
			if err := <-passed; err != nil {
				t.Fatal(err)
			}
			second = again
		}
		one.End()
		(<-second).End()
	})
}

// What somebody waits for goes before the same tenant's background, which gets a turn of
// four all the same, also beside work that never ends.
func TestForegroundFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProcessors(2) // of which tenants have one
		background := Class{Tenant: "acme", Background: true}
		held, err := p.Begin(t.Context(), background)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		queue := func(c Class, name string) {
			go func() {
				turn, err := p.Begin(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				defer turn.End()
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}()
			synctest.Wait()
		}
		for range 2 {
			queue(background, "-")
		}
		for i := range 5 {
			queue(acme, strconv.Itoa(i))
		}
		held.End()
		synctest.Wait()
		if got := strings.Join(order, ""); got != "012-34-" {
			t.Errorf("order %s", got)
		}

		long, err := p.Begin(t.Context(), acme)
		if err != nil {
			t.Fatal(err)
		}
		intake := begin(t, p, background)
		passed := 0
		for ; len(intake) == 0 && passed < 10; passed++ {
			time.Sleep(stretch)
			done := make(chan error, 1)
			go func() { done <- long.Pass(t.Context()) }()
			synctest.Wait()
			if len(intake) > 0 {
				(<-intake).End()
				if err := <-done; err != nil {
					t.Error(err)
				}
				break
			}
			<-done
		}
		if passed != foreground {
			t.Errorf("the background waited %d stretches, want %d", passed, foreground)
		}
		long.End()
	})
}

// On a machine that is short of processors a tenant that never ends gets a sixth of them on
// end, unless it is alone.
func TestPressure(t *testing.T) {
	for _, c := range []struct {
		name           string
		pressed, alone bool
		other          time.Duration // of work of another tenant in each stretch
		want           float64
	}{
		{"pressed", true, false, 0, 1. / 6},
		{"idle", false, false, 0, 1},
		{"alone", true, true, 0, 1},
		{"another uses as much", true, false, stretch, 0.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := NewProcessors(2)
				p.slots.pressed = func() bool { return c.pressed }
				ctx, stop := context.WithCancel(t.Context())
				if !c.alone {
					go func() {
						for ctx.Err() == nil { // it shows up now and then
							if turn, err := p.Begin(ctx, umbrella); err == nil {
								time.Sleep(c.other)
								turn.End()
							}
							if c.other == 0 {
								time.Sleep(memory)
							}
						}
					}()
				}
				var worked atomic.Int64
				for range 2 {
					go func() {
						turn, err := p.Begin(ctx, acme)
						for err == nil {
							time.Sleep(stretch / 2)
							worked.Add(int64(stretch / 2))
							err = turn.Pass(ctx)
						}
						turn.End()
					}()
				}
				time.Sleep(3 * memory)
				before := worked.Load()
				time.Sleep(3 * memory)
				got := float64(worked.Load()-before) / float64(3*memory)
				stop()
				time.Sleep(2 * memory) // until all of them have seen it
				if math.Abs(got-c.want) > 0.08 {
					t.Errorf("it has %.2f of a processor, want %.2f", got, c.want)
				}
			})
		})
	}
}
