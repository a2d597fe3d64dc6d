package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
)

func stateOf(items ...*Item) *DesiredState {
	return &DesiredState{Revision: RevisionOf(items), Items: items}
}

func object(i, version int) *Item {
	return &Item{Kind: "KubernetesObject", Name: fmt.Sprintf("ConfigMap/acme-shop/config-%05d", i), Digest: DigestOf(fmt.Appendf(nil, "%d %d", i, version)), Size: 400}
}

// Whatever becomes of a list, its change leads to it, or there is none.
func TestChangesLeadToTheState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	told := 0
	for range 3000 {
		var from []*Item
		for i := range rng.IntN(30) {
			from = append(from, object(i, 0))
		}
		var to []*Item
		for i, it := range from {
			switch rng.IntN(8) {
			case 0:
			case 1:
				to = append(to, object(i, 1))
			case 2:
				to = append(to, object(100+i, 0), it)
			default:
				to = append(to, proto.CloneOf(it))
			}
		}
		if len(to) > 2 && rng.IntN(4) == 0 {
			i, j := rng.IntN(len(to)), rng.IntN(len(to))
			to[i], to[j] = to[j], to[i]
		}
		a, b := stateOf(from...), stateOf(to...)
		c := ChangeBetween(a, b)
		if c == nil {
			continue
		}
		told++
		got, err := Changed(a, c)
		if err != nil || !proto.Equal(got, b) {
			t.Fatalf("%v\nfrom %v\nto %v\nby %v\n%v", got, a, b, c, err)
		}
	}
	if told < 1500 {
		t.Errorf("%d of 3000 states were told by their change", told)
	}
}

// A change of one of 10,000 objects costs some hundred bytes, and so does one more, one less,
// and a few at different places.
func TestAChangeOfALongListIsShort(t *testing.T) {
	const n = 10000
	from := make([]*Item, n)
	for i := range from {
		from[i] = object(i, 0)
	}
	other := func(at ...int) *DesiredState {
		to := append([]*Item(nil), from...)
		for _, i := range at {
			to[i] = object(i, 1)
		}
		return stateOf(to...)
	}
	a := stateOf(from...)
	for what, b := range map[string]struct {
		to   *DesiredState
		most int
	}{
		"one":      {other(5000), 400},
		"three":    {other(0, 5000, n-1), 800},
		"one less": {stateOf(append(append([]*Item(nil), from[:77]...), from[78:]...)...), 200},
		"one more": {stateOf(append(append([]*Item(nil), from...), object(n, 0))...), 400},
	} {
		c := ChangeBetween(a, b.to)
		got, err := Changed(a, c)
		if err != nil || got.Revision != b.to.Revision {
			t.Fatalf("%s: %v", what, err)
		}
		if size := proto.Size(c); size > b.most {
			t.Errorf("%s: %d bytes, want at most %d; the whole list has %d", what, size, b.most, proto.Size(b.to))
		}
	}
	// Without the one before, or with another list altogether, the list is sent.
	if ChangeBetween(nil, a) != nil || ChangeBetween(stateOf(object(1, 1)), a) != nil {
		t.Error("a change, where the list is as short")
	}
}

func FuzzChanged(f *testing.F) {
	from := stateOf(object(0, 0), object(1, 0), object(2, 0))
	for _, to := range []*DesiredState{stateOf(object(0, 0), object(1, 1), object(2, 0)), stateOf(object(1, 0), object(2, 0)), stateOf()} {
		b, _ := proto.Marshal(ChangeBetween(from, to))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &DesiredChange{}
		if proto.Unmarshal(b, c) != nil {
			return
		}
		c.After = from.Revision
		if got, err := Changed(from, c); err == nil && got.Revision != RevisionOf(got.Items) {
			t.Fatal(got)
		}
	})
}
