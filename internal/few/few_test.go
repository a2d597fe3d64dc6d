package few

import (
	"fmt"
	"strings"
	"testing"
)

// Whatever the length, what is named and what is counted are all there are, and no more than most
// are named.
func TestOf(t *testing.T) {
	var list []string
	for n := range 30 {
		for most := 1; most < 8; most++ {
			want := strings.Join(list, "; ")
			if n > most {
				want = strings.Join(list[:most], "; ") + " and " + fmt.Sprint(n-most) + " more"
			}
			if got := Of(list, most, "; "); got != want {
				t.Errorf("%d of %d: %q, want %q", most, n, got, want)
			}
		}
		list = append(list, fmt.Sprint("s", n))
	}
	if got := Of([]string{"berlin", "oslo", "paris", "rome", "lima"}, 2, ", "); got != "berlin, oslo and 3 more" {
		t.Errorf("%q", got)
	}
}
