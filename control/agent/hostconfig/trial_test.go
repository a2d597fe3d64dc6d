package hostconfig

import (
	"errors"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/hostconfig"
)

func swappy(v string) *hostconfig.Wanted {
	return heal(hostconfig.Settings{Sysctls: map[string]string{"vm.swappiness": v}})
}

// after goes on for a while, looking as Run does.
func (r *rig) after(d time.Duration, w *hostconfig.Wanted) {
	r.t.Helper()
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(trialEvery)
		r.want(w)
	}
}

func (r *rig) swappiness() string { return r.Files()["proc/sys/vm/swappiness"] }

// What leaves the centre out of reach is taken back by the site itself, also by one whose agent
// starts anew meanwhile; it is tried once more, and then no longer.
func TestWhatCutsTheLineIsTakenBack(t *testing.T) {
	r := newRig(t)
	r.want(swappy("10"))
	if r.after(proveFor+trialEvery, swappy("10")); r.host.state.Trial != nil || !r.good {
		t.Fatalf("%+v", r.host.state)
	}
	for try := 1; try <= tries; try++ {
		r.good = false
		if r.want(swappy("20")); r.err != nil || r.swappiness() != "20" || r.good {
			t.Fatalf("try %d: %v, %s; good: %v", try, r.err, r.swappiness(), r.good)
		}
		r.cut = errors.New("no route to host")
		r.after(trialFor-30*time.Second, swappy("20"))
		r.restart()
		if r.want(swappy("20")); r.swappiness() != "20" {
			t.Fatalf("try %d: taken back at once", try)
		}
		if r.after(time.Minute, swappy("20")); r.swappiness() != "10" || r.err == nil || !strings.Contains(r.err.Error(), "it was put back") {
			t.Fatalf("try %d: %s, %v", try, r.swappiness(), r.err)
		}
		r.cut = nil
	}
	r.restart()
	if r.after(time.Hour, swappy("20")); r.swappiness() != "10" || r.err == nil {
		t.Errorf("it is tried for ever: %v", r.err)
	}
	// Another one is taken, and after that the first again.
	for _, v := range []string{"30", "20"} {
		r.want(swappy(v))
		if r.after(2*proveFor, swappy(v)); r.err != nil || r.swappiness() != v || r.host.state.Trial != nil {
			t.Errorf("%s: %s, %v, %+v", v, r.swappiness(), r.err, r.host.state.Trial)
		}
	}
}

// A break that ends in time takes nothing back, and the centre has to be within reach for a
// while: a line that is about to die looks alive for a moment.
func TestWhatIsConnectedStays(t *testing.T) {
	r := newRig(t)
	r.want(swappy("20"))
	r.after(30*time.Second, swappy("20"))
	r.cut = errors.New("no route to host")
	r.after(time.Minute, swappy("20"))
	r.cut = nil
	if r.after(proveFor, swappy("20")); r.host.state.Trial == nil {
		t.Error("it counts what was before the break")
	}
	if r.after(3*trialEvery, swappy("20")); r.host.state.Trial != nil || r.swappiness() != "20" || r.err != nil {
		t.Errorf("%+v %v", r.host.state.Trial, r.err)
	}
}

// Of several on trial what has proved itself is put back; nothing is begun without the centre.
func TestSeveralOnTrial(t *testing.T) {
	r := newRig(t)
	r.want(swappy("20"))
	r.after(10*time.Second, swappy("20"))
	r.want(swappy("30"))
	r.cut = errors.New("no route to host")
	if r.after(trialFor+trialEvery, swappy("30")); r.swappiness() != "60" {
		t.Errorf("the host has %s", r.swappiness())
	}
	if r.want(swappy("40")); r.swappiness() != "60" || r.err == nil || !strings.Contains(r.err.Error(), "only while the centre can be reached") {
		t.Errorf("without the centre: %s, %v", r.swappiness(), r.err)
	}
	r.cut = nil
	if r.want(swappy("40")); r.swappiness() != "40" || r.err != nil {
		t.Errorf("with it: %s, %v", r.swappiness(), r.err)
	}
}
