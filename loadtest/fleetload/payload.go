package fleetload

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"google.golang.org/protobuf/encoding/protowire"

	"muster.dev/muster/internal/remotewrite"
)

// payload is what every site sends, encoded once by the collector's own encoder. A push
// is a copy of it in which the times, the values and the eight digits of the names that
// are a site's own are written over: no labels are built and nothing is marshalled while
// the fleet runs. It never changes, so all sites share it.
type payload struct {
	raw    []byte // io.prometheus.write.v2.Request, uncompressed
	series []series
	times  []int // where each series' time stands in raw: a varint of timeBytes
	values []int // and its value: 8 bytes, little endian
	node   int   // where the digits of nodeName stand; 0: nowhere
	pods   []int // where those of each pod's name stand

	interval time.Duration
	// life of a pod: after it another one, with series of its own, takes its place. 0: for ever.
	life time.Duration
}

// timeBytes is how long a varint of milliseconds since 1970 is, from 2004 to 2109.
const timeBytes = 6

// split tells which part of a site's series goes in one push of several: every
// scrape target is a push of its own in a real collector.
func split(all []series, parts int) [][]series {
	out := make([][]series, 0, parts)
	for i := range parts {
		out = append(out, all[i*len(all)/parts:(i+1)*len(all)/parts])
	}
	return out
}

// newPayloads encodes n series as parts pushes. churn is the share of the series that
// another takes the place of in a minute.
func newPayloads(n, parts int, interval time.Duration, churn float64) ([]*payload, error) {
	all, pods := seriesOf(n)
	var life time.Duration
	if own := ownedByPods(all); own > 0 && churn > 0 {
		life = time.Duration(float64(own) / (churn * float64(n)) * float64(time.Minute))
		life = max(life, 2*interval)
	}
	var out []*payload
	for _, some := range split(all, parts) {
		p, err := newPayload(some, pods)
		if err != nil {
			return nil, err
		}
		p.interval, p.life = interval, life
		out = append(out, p)
	}
	return out, nil
}

func ownedByPods(all []series) int {
	n := 0
	for _, s := range all {
		if s.pod >= 0 {
			n++
		}
	}
	return n
}

func newPayload(all []series, pods int) (*payload, error) {
	in := make([]remotewrite.Series, 0, len(all))
	for _, s := range all {
		// Zeros are left out of the encoding: there would be nothing to write over.
		in = append(in, remotewrite.Series{Labels: labels.FromStrings(s.labels...), Samples: []remotewrite.Sample{{T: time.Now().UnixMilli(), V: 1}}})
	}
	raw, err := snappy.Decode(nil, remotewrite.EncodeV2(in))
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	p := &payload{raw: raw, series: all, pods: make([]int, pods)}
	symbols := map[string]*int{nodeName: &p.node}
	for i := range p.pods {
		symbols[podName(i)] = &p.pods[i]
	}
	if err := p.locate(symbols); err != nil {
		return nil, err
	}
	if len(p.times) != len(all) || len(p.values) != len(all) {
		return nil, fmt.Errorf("payload: found %d times and %d values of %d series", len(p.times), len(p.values), len(all))
	}
	return p, nil
}

// Fields of io.prometheus.write.v2.
const (
	fieldSymbols    = 4 // of Request
	fieldTimeseries = 5
	fieldSamples    = 2 // of TimeSeries
	fieldValue      = 1 // of Sample
	fieldTimestamp  = 2
)

// locate notes where in raw stands what a push writes over.
func (p *payload) locate(symbols map[string]*int) error {
	return fields(p.raw, 0, func(num protowire.Number, typ protowire.Type, at, end int) error {
		switch {
		case num == fieldSymbols && typ == protowire.BytesType:
			if where := symbols[string(p.raw[at:end])]; where != nil {
				*where = end - 8
			}
		case num == fieldTimeseries && typ == protowire.BytesType:
			return fields(p.raw[at:end], at, func(num protowire.Number, typ protowire.Type, at, end int) error {
				if num != fieldSamples || typ != protowire.BytesType {
					return nil
				}
				return fields(p.raw[at:end], at, func(num protowire.Number, typ protowire.Type, at, end int) error {
					switch {
					case num == fieldValue && typ == protowire.Fixed64Type:
						p.values = append(p.values, at)
					case num == fieldTimestamp && typ == protowire.VarintType && end-at == timeBytes:
						p.times = append(p.times, at)
					}
					return nil
				})
			})
		}
		return nil
	})
}

// fields calls f for each field of a message with where its content begins and ends;
// base is where the message itself begins.
func fields(b []byte, base int, f func(num protowire.Number, typ protowire.Type, at, end int) error) error {
	for pos := 0; pos < len(b); {
		num, typ, n := protowire.ConsumeTag(b[pos:])
		if n < 0 {
			return fmt.Errorf("payload: %w", protowire.ParseError(n))
		}
		pos += n
		size := protowire.ConsumeFieldValue(num, typ, b[pos:])
		if size < 0 {
			return fmt.Errorf("payload: %w", protowire.ParseError(size))
		}
		at := pos
		if typ == protowire.BytesType {
			_, n := protowire.ConsumeVarint(b[pos:])
			at += n
		}
		pos += size
		if err := f(num, typ, base+at, base+pos); err != nil {
			return err
		}
	}
	return nil
}

// seedOf is a site's own number: it sets its values and names apart from others'.
func seedOf(site string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(site))
	return h.Sum64()
}

// mix is splitmix64's last step: good enough noise, and cheap.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// generation is the how-manieth pod in its place runs at a time. The places of all sites
// change at different times.
func (p *payload) generation(seed uint64, pod int, at time.Time) uint64 {
	if p.life <= 0 {
		return 0
	}
	offset := mix(seed^uint64(pod)<<32) % uint64(p.life)
	return (uint64(at.UnixNano()) + offset) / uint64(p.life)
}

// epoch is when counters began.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fill writes what the site with this seed measured at a time into raw, a copy of
// p.raw, and returns how many samples it is. The same site and time give the same bytes,
// so what could not be sent is remembered by its time alone. A pod that is there for the
// last time ends with staleness markers, as with a real collector.
func (p *payload) fill(raw []byte, seed uint64, at time.Time) int {
	if p.node > 0 {
		putHex(raw[p.node:], uint32(seed))
	}
	var ends [maxPods]bool
	for i, where := range p.pods {
		gen := p.generation(seed, i, at)
		ends[i] = p.generation(seed, i, at.Add(p.interval)) != gen
		if where > 0 {
			putHex(raw[where:], uint32(mix(seed^gen<<8^uint64(i))))
		}
	}
	var when [timeBytes]byte
	binary.PutUvarint(when[:], uint64(at.UnixMilli()))
	since, second, own := at.Sub(epoch).Seconds(), uint64(at.Unix()), float64(seed>>48)
	for i := range p.series {
		s := &p.series[i]
		copy(raw[p.times[i]:], when[:])
		v := s.base
		switch s.kind {
		case counter:
			v += own + math.Floor(s.slope*since*100)/100
		case gauge:
			v += s.slope * (float64(mix(seed+uint64(i)*0x1000193+second)>>40)/(1<<23) - 1)
		case clock:
			v = float64(second)
		}
		bits := math.Float64bits(v)
		if s.pod >= 0 && ends[s.pod] {
			bits = value.StaleNaN
		}
		binary.LittleEndian.PutUint64(raw[p.values[i]:], bits)
	}
	return len(p.series)
}

const hexDigits = "0123456789abcdef"

func putHex(b []byte, v uint32) {
	for i := range 8 {
		b[i] = hexDigits[v>>(28-4*i)&15]
	}
}
