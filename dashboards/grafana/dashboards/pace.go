package dashboards

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"muster.dev/muster/internal/fleet"
)

// rateOfLink is the rate of a counter that agents keep of their links, over window, and where a site is scraped too
// seldom for that over what the console's links are over.
func rateOfLink(series, window string) string {
	from := fleet.Paces[0]
	if w, err := model.ParseDuration(window); err == nil { // else it is Grafana's variable
		from = time.Duration(w) / 4
	}
	return paced("rate("+series+"["+window+"])", "rate", series, from)
}

// lastOfLink is a gauge of theirs. PromQL looks back 5 minutes for it by itself.
func lastOfLink(series string) string {
	return paced(series, "last_over_time", series, 2*time.Minute)
}

// paced is an expression or, of series that have none, f over the windows of slower paces than from. Such a window
// counts for series that have fewer samples, in twice of it, than the pace before gives: so that a site which is gone
// has figures for the window of the next slower pace at most, and not for the slowest one's.
func paced(first, f, series string, from time.Duration) string {
	out := []string{first}
	for i, pace := range fleet.Paces {
		if i == 0 || pace <= from {
			continue
		}
		window := fleet.RateWindow(pace)
		out = append(out, fmt.Sprintf("%s(%s[%s]) and count_over_time(%s[%s]) < %d", f, series, model.Duration(window), series, model.Duration(2*window), 2*window/fleet.Paces[i-1]))
	}
	return "(" + strings.Join(out, " or ") + ")"
}
