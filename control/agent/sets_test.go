package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

// holder is a SetApplier that notes what it was handed last.
type holder struct {
	mu   sync.Mutex
	sets int
	last agent.Set
}

func (h *holder) TakeSet(s agent.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sets, h.last = h.sets+1, s
}

// names is what is wanted, with the content where it is at hand and what is good.
func (h *holder) names() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, it := range h.last.Items {
		line := it.Name
		if it.Err == nil {
			b, err := h.last.Blob(it.Digest)
			if err != nil {
				return err.Error()
			}
			line += "=" + string(b)
		}
		if it.Good != "" {
			b, err := h.last.Blob(it.Good)
			if err != nil {
				return err.Error()
			}
			line += "(" + string(b) + ")"
		}
		out = append(out, line)
	}
	return strings.Join(out, " ")
}

func (h *holder) set() agent.Set {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func object(name, content string) fakeregional.Blob {
	return fakeregional.Blob{Kind: "Object", Name: name, Data: []byte(content)}
}

func withSet(h *holder) func(*agent.Options) {
	return func(o *agent.Options) { o.Sets = map[string]agent.SetApplier{"Object": h} }
}

func TestASetIsHandedOverWholeAndSettledByItsApplier(t *testing.T) {
	h := &holder{}
	r, s := fleetOf(t, withSet(h))
	st := r.SetDesired(paris, policy("one"), object("a", "A1"), object("b", "B1"))
	r.Eventually("the set is handed over", func() bool { return h.names() == "a=A1 b=B1" })
	a, b := st.Items[1].Digest, st.Items[2].Digest
	h.set().Applied("a", a, nil)
	h.set().Applied("b", b, errors.New("quota exceeded"))
	r.Eventually("what failed is told", func() bool {
		return strings.Contains(r.Seen(paris).Condition("ObjectApplied").GetMessage(), "b: quota exceeded")
	})
	if r.Seen(paris).Report.GetAppliedRevision() == st.Revision {
		t.Error("the revision is told as applied while an item failed")
	}
	h.set().Applied("b", b, nil)
	r.Eventually("all is in effect", func() bool { return r.Seen(paris).Report.GetAppliedRevision() == st.Revision })

	// What proved itself is there to go back to, across restarts, until another has.
	h.set().Good("a", a)
	r.Eventually("it is written down", func() bool {
		b, _ := os.ReadFile(filepath.Join(s.dir, "desired.json"))
		changes, _ := os.ReadFile(filepath.Join(s.dir, "desired.json.changes"))
		return strings.Contains(string(b)+string(changes), `"Object/a":"`+a)
	})
	st = r.SetDesired(paris, policy("one"), object("a", "A2"), object("b", "B1"))
	r.Eventually("the next version comes with the good one", func() bool { return h.names() == "a=A2(A1) b=B1" })
	s.stop()
	r.Stop()
	h2 := &holder{}
	s2 := start(t, s.dir, nil, withSet(h2))
	r.Eventually("so it does after a restart without a regional", func() bool { return h2.names() == "a=A2(A1) b=B1" })
	h2.set().Good("a", st.Items[1].Digest)
	r.Eventually("the old blob is swept", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "blobs", a))
		return os.IsNotExist(err)
	})
	r.Restart()
	r.Eventually("connected", func() bool { return s2.Status().Phase == agent.PhaseConnected })
	r.SetDesired(paris, policy("one"))
	r.Eventually("the empty set is handed over, too", func() bool { return len(h2.set().Items) == 0 })
}

// A version that has proved itself a moment before the next one comes is what that one goes
// back to; one that is gone can't prove itself any more.
func TestWhatHasJustProvedItselfIsKept(t *testing.T) {
	h := &holder{}
	r, s := fleetOf(t, withSet(h))
	st := r.SetDesired(paris, policy("one"), object("a", "A1"))
	r.Eventually("the first version is handed over", func() bool { return h.names() == "a=A1" })
	if !h.set().Good("a", st.Items[1].Digest) {
		t.Error("what is wanted can't prove itself")
	}
	st = r.SetDesired(paris, policy("one"), object("a", "A2")) // before anything was written down
	r.Eventually("the second comes with the first", func() bool { return h.names() == "a=A2(A1)" })
	r.SetDesired(paris, policy("one"), object("a", "A3"))
	r.Eventually("so does the third", func() bool { return h.names() == "a=A3(A1)" })
	second := st.Items[1].Digest
	r.Eventually("the second is swept", func() bool {
		_, err := os.Stat(filepath.Join(s.dir, "blobs", second))
		return os.IsNotExist(err)
	})
	if h.set().Good("a", second) {
		t.Error("what is gone proves itself")
	}
	r.SetDesired(paris, policy("one"), object("a", "A4"))
	r.Eventually("the first is still to go back to", func() bool { return h.names() == "a=A4(A1)" })
}

func TestABlobThatCannotBeHadHoldsUpNoOther(t *testing.T) {
	h := &holder{}
	r, s := fleetOf(t, withSet(h))
	lost := wire.DigestOf([]byte("lost"))
	r.SetBlob(lost, []byte("l0st"))
	r.SetBlob(wire.DigestOf([]byte("here")), []byte("here"))
	r.SetBlob(wire.DigestOf([]byte("policy")), []byte("policy"))
	items := []*wire.Item{
		{Kind: "Object", Name: "a", Digest: lost, Size: 4},
		{Kind: "Object", Name: "b", Digest: wire.DigestOf([]byte("here")), Size: 4},
		{Kind: "CollectionPolicy", Name: "effective", Digest: wire.DigestOf([]byte("policy")), Size: 6},
	}
	r.SetState(paris, &wire.DesiredState{Revision: wire.RevisionOf(items), Items: items})
	r.Eventually("the others are in effect", func() bool { return h.names() == "a b=here" && s.rec.last() == "effective=policy" })
	r.Eventually("which one is missing is told", func() bool {
		return strings.Contains(r.Seen(paris).Condition("ObjectApplied").GetMessage(), "a: fetch")
	})
	r.SetBlob(lost, []byte("lost"))
	r.Eventually("it is fetched in the end", func() bool { return h.names() == "a=lost b=here" })
}

func TestAKindThatIsSwitchedOffIsNotFetched(t *testing.T) {
	r, _ := fleetOf(t, func(o *agent.Options) { o.SwitchedOff = []string{"Object"} })
	r.SetDesired(paris, object("a", "A1"))
	r.Eventually("the site says what to do", func() bool {
		return strings.Contains(r.Seen(paris).Condition("ObjectApplied").GetMessage(), "switch it on")
	})
	if n := len(r.Fetched()); n != 0 {
		t.Errorf("%d downloads of what nobody takes", n)
	}
}

// Who deploys to a site without a cluster is told so, until the site is left out.
func TestWorkloadsThatASiteDoesNotTake(t *testing.T) {
	r, _ := fleetOf(t, func(o *agent.Options) { o.SwitchedOff = []string{workload.Kind}; quick(o) })
	r.SetDesired(paris, fakeregional.Blob{Kind: workload.Kind, Name: "Deployment.apps/acme-shop/web", Data: []byte("{}")})
	said := func(objects int) func() bool {
		return func() bool {
			epoch, _ := r.Cluster(paris).Version()
			return epoch != "" && r.Cluster(paris).Stats().Objects == objects
		}
	}
	r.Eventually("the workload's state is told", said(1))
	r.SetDesired(paris, policy("p"))
	r.Eventually("nothing is told of what is not wanted any more", said(0))
	if n := len(r.Fetched()); n > 1 {
		t.Errorf("%d downloads, one of a policy at most", n)
	}
}
