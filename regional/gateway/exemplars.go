package gateway

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
)

// Exemplars are examples: the newest few are kept, in one ring of the engine's for all
// sites. So each site may only turn it slowly, and what is too much, out of order or
// malformed is dropped, without a refusal of the samples beside it. They are not forwarded.
const (
	maxExemplars       = 16 // of one series in one request
	exemplarsPerSecond = 10 // of one site
	exemplarBurst      = 300
)

// appendExemplarsLocked appends the exemplars of the series that the decoder stands on.
func (s *site) appendExemplarsLocked(p *pusher, c *cached, w window, now time.Time, out *outcome) {
	last := int64(math.MinInt64)
	for _, e := range p.dec.Exemplars {
		// The engine checks the order only against what it has stored.
		if reason, _ := w.check(e.T); reason != "" || len(e.Pairs)%2 != 0 || e.T < last {
			continue
		}
		size := 0
		p.builder.Reset()
		for i := 0; i < len(e.Pairs); i += 2 {
			size += len(e.Pairs[i]) + len(e.Pairs[i+1])
			if size > 4*exemplar.ExemplarMaxLabelSetLength { // characters of UTF-8
				break
			}
			p.builder.Add(strings.Clone(e.Pairs[i]), strings.Clone(e.Pairs[i+1]))
		}
		if size > 4*exemplar.ExemplarMaxLabelSetLength || !s.examples.AllowN(now, 1) {
			continue
		}
		p.builder.Sort()
		ref, err := p.app.AppendExemplar(c.ref, c.labels, exemplar.Exemplar{Labels: p.builder.Labels(), Value: e.V, Ts: e.T, HasTs: true})
		if err == nil && ref != 0 {
			last = e.T
			out.exemplars++
		}
	}
}
