package query

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"muster.dev/muster/internal/promcost"
)

// MaxNames bounds the names of one answer.
const MaxNames = 10_000

// NamesRequest asks which names there are: of labels, or values of one. Names of metrics are
// the values of __name__.
type NamesRequest struct {
	Label      string // whose values are wanted; "": names of labels
	Match      string // a selector that the series must fit; "": any series
	Contains   string // only names with this in them, whatever the case
	Start, End time.Time
	Limit      int // 0: MaxNames, which it can't exceed
}

// Names is the answer.
type Names struct {
	Names []string `json:"names"` // sorted
	// More says that there are others which fit.
	More bool `json:"more"`
}

// Names asks the store for a tenant's names. What it returns is 200 and Names as JSON, or a
// status and an error as the Prometheus HTTP API has it.
func (c *Client) Names(ctx context.Context, tenant string, r NamesRequest) (status int, body []byte) {
	form := url.Values{"start": {stamp(r.Start)}, "end": {stamp(r.End)}}
	if r.Match != "" {
		expr, err := promcost.Query.Parse(r.Match, promcost.Window{})
		if err == nil {
			_, err = parser.ParseMetricSelector(r.Match)
		}
		if err != nil || expr == nil {
			c.refused.WithLabelValues("bad_query").Inc()
			return http.StatusBadRequest, errorJSON("bad_data", err.Error())
		}
		form.Set("match[]", r.Match)
	}
	path := "/labels"
	if r.Label != "" {
		if !model.LegacyValidation.IsValidLabelName(r.Label) {
			return http.StatusBadRequest, errorJSON("bad_data", "label: want the name of a label, such as job")
		}
		path = "/label/" + r.Label + "/values"
	}
	status, body, err := c.do(ctx, tenant, http.MethodGet, path, form)
	if err != nil {
		return c.failed(err)
	}
	if status != http.StatusOK {
		return status, jsonOrError(status, body)
	}
	var answer struct {
		Data []string `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return http.StatusBadGateway, errorJSON("unavailable", "the metric store gave no usable answer")
	}
	b, err := json.Marshal(pick(answer.Data, r.Contains, r.Limit))
	if err != nil {
		panic(err) // strings always marshal
	}
	return http.StatusOK, b
}

// pick leaves the names that are wanted: those that begin with the text first, as far as they
// are cut.
func pick(names []string, contains string, limit int) Names {
	if limit <= 0 || limit > MaxNames {
		limit = MaxNames
	}
	text := strings.ToLower(contains)
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(strings.ToLower(n), text) })
	slices.SortFunc(names, func(a, b string) int {
		if x, y := strings.HasPrefix(strings.ToLower(a), text), strings.HasPrefix(strings.ToLower(b), text); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	out := Names{Names: names, More: len(names) > limit}
	if out.More {
		out.Names = names[:limit]
	}
	if out.Names == nil {
		out.Names = []string{}
	}
	return out
}

// pattern is a path as metrics have it, without names.
func pattern(path string) string {
	if strings.HasPrefix(path, "/label/") {
		return "/label/values"
	}
	return path
}
