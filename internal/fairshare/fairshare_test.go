package fairshare

import "testing"

// TestShares: whoever comes finds room, however greedy those before were, and what they
// get in the end is about equal.
func TestShares(t *testing.T) {
	for _, greed := range []int64{1, 4} {
		const total = 1 << 16
		var held [5]int64
		used := int64(0)
		for who := range held {
			for Fits(held[who], 1, used, total, greed) {
				held[who]++
				used++
			}
			if held[who] == 0 {
				t.Errorf("greed %d: number %d found no room", greed, who)
			}
		}
		if want := total * greed / (1 + greed); held[0] < want-1 || held[0] > want+1 {
			t.Errorf("greed %d: one alone got %d of %d", greed, held[0], total)
		}
		if used > total {
			t.Errorf("greed %d: %d of %d taken", greed, used, total)
		}
		// All give back a tenth and take in turns what they may: the shares become equal.
		for range 100 {
			for who := range held {
				used -= held[who] / 10
				held[who] -= held[who] / 10
			}
			for took := true; took; {
				took = false
				for who := range held {
					if Fits(held[who], 8, used, total, greed) {
						held[who] += 8
						used += 8
						took = true
					}
				}
			}
		}
		for who := range held {
			if want := total * greed / (1 + 5*greed); held[who] < want*9/10 || held[who] > want*11/10 {
				t.Errorf("greed %d: number %d holds %d in the end, want about %d", greed, who, held[who], want)
			}
		}
	}
	if Fits(0, 11, 0, 10, 1) || !Fits(0, 10, 0, 10, 1) || Fits(1, 1, 10, 10, 4) {
		t.Error("the room's own bound")
	}
}
