package cli

import (
	"maps"
	"net/url"
	"strings"
	"time"

	"muster.dev/muster/internal/wire"
)

// patience is how long regions are waited for once another has answered, before it is said who is late.
const patience = 2 * time.Second

// askAll asks something of all regionals. If some are late, which are those of missing, tell hears who,
// beside what the others say, and it is asked again for as long as they may take.
func askAll[T any](q url.Values, ask func(url.Values, *T) error, missing func(*T) []wire.MissingRegion, tell func(x *T, late string)) (*T, error) {
	hasty := maps.Clone(q)
	hasty.Set("patience", patience.String())
	x := new(T)
	if err := ask(hasty, x); err != nil {
		return nil, err
	}
	var late []string
	for _, m := range missing(x) {
		if m.Late {
			late = append(late, printable(m.Region))
		}
	}
	if len(late) == 0 {
		return x, nil
	}
	tell(x, strings.Join(late, ", "))
	x = new(T) // what the second answer leaves out is not the first one's
	return x, ask(q, x)
}
