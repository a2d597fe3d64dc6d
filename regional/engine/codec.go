package engine

import (
	"github.com/prometheus/prometheus/promql"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// vectorCodec answers instant queries in wire.VectorType who asks for it, as health does:
// it reads half a million series in a tick of ten thousand sites.
type vectorCodec struct{}

// ContentType implements apiv1.Codec.
func (vectorCodec) ContentType() apiv1.MIMEType {
	return apiv1.MIMEType{Type: "application", SubType: "vnd.muster.vector"}
}

// CanEncode implements apiv1.Codec.
func (vectorCodec) CanEncode(resp *apiv1.Response) bool {
	_, ok := numbers(resp)
	return ok
}

// numbers is the vector that an answer is, if it has nothing but numbers.
func numbers(resp *apiv1.Response) (promql.Vector, bool) {
	data, ok := resp.Data.(*apiv1.QueryData)
	if !ok {
		return nil, false
	}
	v, ok := data.Result.(promql.Vector)
	for i := range v {
		if v[i].H != nil {
			return nil, false
		}
	}
	return v, ok
}

// Encode implements apiv1.Codec.
func (vectorCodec) Encode(resp *apiv1.Response) ([]byte, error) {
	v, _ := numbers(resp)
	b := wire.AppendVector(make([]byte, 0, 16+40*len(v)), len(v))
	for i := range v {
		b = wire.AppendSeries(b, v[i].Metric.Get(fleet.SeriesTenant), v[i].Metric.Get(fleet.SeriesSite), v[i].F)
	}
	return b, nil
}
