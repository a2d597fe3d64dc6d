package hostile

import "testing"

func TestWall(t *testing.T) {
	for name, c := range map[string]struct {
		wall Wall
		came Tally
		ok   bool
	}{
		"nothing is asked":    {Wall{}, Tally{"200": 1}, true},
		"refused":             {refused, Tally{"422": 5, "no answer": 1}, true},
		"one is let in":       {refused, Tally{"422": 5, "200": 1}, false},
		"never refused":       {refused, Tally{"no answer": 6}, false},
		"bounded":             {bounded, Tally{"204": 6, "429": 1}, true},
		"all of it is let in": {bounded, Tally{"204": 6}, false},
	} {
		if err := c.wall.Check(c.came); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every attack has a name of its own, a pace, and something to try.
func TestAttacks(t *testing.T) {
	names := map[string]bool{}
	for _, list := range [][]Attack{(&Site{}).Attacks(), (&Tenant{}).Attacks(), (&Anyone{}).Attacks()} {
		for _, a := range list {
			if names[a.Name] || a.Every <= 0 || a.Try == nil {
				t.Errorf("%+v", a)
			}
			names[a.Name] = true
		}
	}
}
