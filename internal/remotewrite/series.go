// Package remotewrite turns series into Prometheus remote write requests and
// sends them: a Sender drains a spool of encoded batches to an HTTP endpoint with
// several requests in flight, retries and back-off.
//
// It keeps no samples of its own beyond those in flight, and does not decide what
// is collected or who may write. The collector and the regional's forward use it
// to send; the gateway uses its decoders.
package remotewrite

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
)

// Sample is one float value; T is milliseconds since 1970.
type Sample struct {
	T int64
	V float64
}

// Histogram is one native histogram; one of H and FH is set. T is milliseconds
// since 1970.
type Histogram struct {
	T  int64
	H  *histogram.Histogram
	FH *histogram.FloatHistogram
}

// Metadata is a series' type, unit and help text.
type Metadata = metadata.Metadata

// Series is one series with its samples, oldest first.
type Series struct {
	Labels     labels.Labels
	Metadata   Metadata
	Samples    []Sample
	Histograms []Histogram
}

// Info is what a spool record says about its content without being decoded.
type Info struct {
	Key          string
	Lane         uint32
	Series       int
	Samples      int   // float samples
	Histograms   int   // native histogram samples
	MinT, MaxT   int64 // milliseconds since 1970 of the oldest and the newest sample
	EncodedBytes int   // of the compressed request

	stamp string // as it stands in the record, of which it is a part
}

// All is the number of samples of both kinds.
func (i Info) All() int { return i.Samples + i.Histograms }

func infoOf(key string, series []Series) Info {
	info := Info{Key: key, Series: len(series)}
	first := true
	at := func(t int64) {
		if first {
			info.MinT, info.MaxT, first = t, t, false
		}
		info.MinT, info.MaxT = min(info.MinT, t), max(info.MaxT, t)
	}
	for i := range series {
		s := &series[i]
		info.Samples += len(s.Samples)
		info.Histograms += len(s.Histograms)
		for _, p := range s.Samples {
			at(p.T)
		}
		for _, p := range s.Histograms {
			at(p.T)
		}
	}
	return info
}
