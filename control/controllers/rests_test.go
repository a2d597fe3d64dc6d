package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// TestRests: a tenant that changes all the time takes a fifth of the loop's, another one does
// not wait for it, one that changes seldom does not wait, and none waits for long.
func TestRests(t *testing.T) {
	for _, c := range []struct {
		name string
		pass time.Duration
		want int // passes in ten seconds
	}{{"small", time.Millisecond, 2000}, {"large", 100 * time.Millisecond, 20}, {"busy", 3 * time.Second, 3}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				queue := workqueue.NewTyped[string]()
				defer queue.ShutDown()
				began, passes := time.Now(), 0
				for queue.Add(c.name); ; {
					name, _ := queue.Get()
					if time.Since(began) >= 10*time.Second {
						break
					}
					if name != c.name {
						t.Fatalf("got %q", name)
					}
					passes++
					time.Sleep(c.pass)
					queue.Add(c.name) // it has changed again
					doneAfterRest(queue, c.name, c.pass)

					queue.Add("another")
					now := time.Now()
					name, _ = queue.Get()
					if waited := time.Since(now); name != "another" || waited != 0 {
						t.Fatalf("another tenant waits %s, behind %q", waited, name)
					}
					queue.Done(name)
				}
				if passes != c.want {
					t.Errorf("%d passes, want %d", passes, c.want)
				}
				queue.Done(c.name)
				time.Sleep(time.Hour)
				now := time.Now()
				queue.Add(c.name)
				if queue.Get(); time.Since(now) != 0 {
					t.Errorf("it waits %s though it has not changed for an hour", time.Since(now))
				}
				queue.Done(c.name)
			})
		})
	}
}
