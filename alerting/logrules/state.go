package logrules

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"muster.dev/muster/internal/logquery"
)

const (
	stateVersion = 1
	maxValue     = 1000 << 10 // bytes of a document, packed
	maxUnpacked  = 64 << 20
)

// state is what one rule knows of one tenant's sites. Times are milliseconds since
// 1970, save for Position.
type state struct {
	Version   int       `json:"v"`
	Epoch     int64     `json:"epoch"` // of the owner that wrote it
	Hash      string    `json:"hash"`  // of what the rule counts: another one starts anew
	LabelHash string    `json:"labelHash"`
	Position  time.Time `json:"position"` // lines taken in up to here are counted
	Judged    int64     `json:"judged"`   // the last end of a step that was judged
	Learn     int64     `json:"learn,omitempty"`

	Keys       map[string]*window    `json:"keys,omitempty"`
	Silenced   map[string]int64      `json:"silenced,omitempty"` // by realert, until when
	Backoff    map[string]backoff    `json:"backoff,omitempty"`  // of exponential_realert
	Collecting map[string]*collected `json:"collecting,omitempty"`
	Pending    []pending             `json:"pending,omitempty"`
	// The outbox: what fires, and what ended and the Sink has not taken yet.
	Active map[string]*active `json:"active,omitempty"`
	Ended  []*active          `json:"ended,omitempty"`
	Cut    int64              `json:"cut,omitempty"` // keys and values left out for want of room
}

// window is what is known of one site and value of query_key.
type window struct {
	First   int64            `json:"f,omitempty"` // known, or looked at anew, since
	Last    int64            `json:"l,omitempty"` // when lines last came in
	Buckets []bucket         `json:"b,omitempty"` // in order of T
	Terms   map[string]int64 `json:"t,omitempty"` // hash → last seen
	Value   string           `json:"v,omitempty"` // of change, and when it was last seen
	ValueAt int64            `json:"va,omitempty"`

	sample // a line of this evaluation
}

// bucket is the lines of one step.
type bucket struct {
	T int64 `json:"t"` // where the step begins
	N int64 `json:"n,omitempty"`
	M int64 `json:"m,omitempty"` // with a number, or of match_bucket_filter
	// Of frequency: the first and the last line, after T, and when the last came in.
	First int64   `json:"f,omitempty"`
	Last  int64   `json:"l,omitempty"`
	Seen  int64   `json:"s,omitempty"`
	Min   float64 `json:"lo,omitempty"` // these of M lines
	Max   float64 `json:"hi,omitempty"`
	Sum   float64 `json:"sum,omitempty"`
	// Spread of these, for percentiles.
	Spread logquery.Spread `json:"h,omitempty"`
}

// pending is a line that change does not look at yet.
type pending struct {
	Key     string   `json:"k"`
	Value   string   `json:"v"`
	At      int64    `json:"at"`
	Message string   `json:"m,omitempty"`
	Include []string `json:"i,omitempty"`
}

// collected is what aggregation has of one key.
type collected struct {
	Until   int64    `json:"until"`
	At      int64    `json:"at"`
	Count   int64    `json:"count"` // of matches
	Value   float64  `json:"value"`
	Message string   `json:"message,omitempty"`
	Include []string `json:"include,omitempty"`
	Summary string   `json:"summary,omitempty"`
}

// active is an alert of the outbox.
type active struct {
	Site        string            `json:"site"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations,omitempty"`
	StartsAt    int64             `json:"startsAt"`
	Until       int64             `json:"until,omitempty"` // fires until; of a lasting one that ended, when
	Lasting     bool              `json:"lasting,omitempty"`
	Taken       bool              `json:"taken,omitempty"` // by the Sink, at least once

	sent, ends int64 // when it was sent last by this process, and with which end
}

func newState() *state { return &state{Version: stateVersion} }

func (s *state) init() {
	makeIfNil(&s.Keys)
	makeIfNil(&s.Silenced)
	makeIfNil(&s.Backoff)
	makeIfNil(&s.Collecting)
	makeIfNil(&s.Active)
}

func makeIfNil[V any](m *map[string]V) {
	if *m == nil {
		*m = map[string]V{}
	}
}

var packer = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err) // options only
	}
	return e
})

var unpacker = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		panic(err)
	}
	return d
})

func pack(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return packer().EncodeAll(b, nil), nil
}

func unpack(b []byte, v any) error {
	b, err := unpacker().DecodeAll(b, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// encode packs the state. One that is too big loses windows, those of the sites that
// have the most, then everything else that can be learned again, and alerts only then.
func (s *state) encode() ([]byte, error) {
	for {
		b, err := pack(s)
		if err != nil || len(b) <= maxValue {
			return b, err
		}
		if !s.shrink() {
			return nil, fmt.Errorf("%d bytes of alerts, the limit is %d", len(b), maxValue)
		}
	}
}

func (s *state) shrink() bool {
	switch {
	case len(s.Keys) > 0:
		s.shrinkWindows()
	case len(s.Pending) > 0:
		s.Cut += int64(len(s.Pending))
		s.Pending = nil
	case len(s.Collecting) > 0 || len(s.Silenced) > 0 || len(s.Backoff) > 0:
		s.Cut += int64(len(s.Collecting))
		clear(s.Collecting)
		clear(s.Silenced)
		clear(s.Backoff)
	default:
		return s.shrinkAlerts()
	}
	return true
}

// shrinkAlerts drops half of the alerts, the latest, of the site that has the most: a
// site whose lines make thousands of them must not keep the rule from being written. A
// single alert stays.
func (s *state) shrinkAlerts() bool {
	bySite := map[string][]string{}
	for k, a := range s.Active {
		bySite[a.Site] = append(bySite[a.Site], k)
	}
	var most []string
	for _, site := range slices.Sorted(maps.Keys(bySite)) {
		if len(bySite[site]) > len(most) {
			most = bySite[site]
		}
	}
	if len(most) < 2 {
		n := len(s.Ended) / 2
		s.Ended = s.Ended[n:]
		s.Cut += int64(n)
		return n > 0
	}
	slices.SortFunc(most, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Active[a].StartsAt, s.Active[b].StartsAt), cmp.Compare(a, b))
	})
	for _, k := range most[(len(most)+1)/2:] {
		delete(s.Active, k)
		s.Cut++
	}
	return true
}

// shrinkWindows drops about half of what the windows take up. The same bound holds for
// each site: who is over it loses windows, those first that no line came for the longest.
func (s *state) shrinkWindows() {
	type windows struct {
		keys []string
		size int
		last int64
	}
	total, bySite := 0, map[string]*windows{}
	for k, w := range s.Keys {
		site := siteOf(k)
		if bySite[site] == nil {
			bySite[site] = &windows{}
		}
		of := bySite[site]
		of.keys, of.size, of.last = append(of.keys, k), of.size+w.size(k), max(of.last, w.Last)
		total += w.size(k)
	}
	half := total / 2
	bound := sort.Search(total, func(bound int) bool { // the first that is too much
		sum := 0
		for _, of := range bySite {
			sum += min(of.size, bound+1)
		}
		return sum > half
	})
	largest := slices.SortedFunc(maps.Values(bySite), func(a, b *windows) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.last, b.last))
	})
	for _, of := range largest {
		slices.SortFunc(of.keys, func(a, b string) int { return cmp.Or(cmp.Compare(s.Keys[a].Last, s.Keys[b].Last), cmp.Compare(a, b)) })
		for _, k := range of.keys {
			if total <= half || of.size <= bound {
				break
			}
			total, of.size = total-s.Keys[k].size(k), of.size-s.Keys[k].size(k)
			delete(s.Keys, k)
			s.Cut++
		}
	}
}

// size is about how many bytes of JSON a window is.
func (w *window) size(key string) int {
	bins := 0
	for _, b := range w.Buckets {
		bins += len(b.Spread)
	}
	return 50 + len(key) + 60*len(w.Buckets) + 10*bins + 30*len(w.Terms) + len(w.Value)
}

var errVersion = errors.New("written by a newer version of Muster")

func decodeState(b []byte) (*state, error) {
	s := &state{}
	if err := unpack(b, s); err != nil {
		return nil, err
	}
	if s.Version > stateVersion {
		return nil, errVersion
	}
	for k, w := range s.Keys {
		if w == nil {
			delete(s.Keys, k)
			continue
		}
		slices.SortFunc(w.Buckets, func(a, b bucket) int { return int(min(max(a.T-b.T, -1), 1)) })
	}
	maps.DeleteFunc(s.Collecting, func(_ string, c *collected) bool { return c == nil })
	for k, b := range s.Backoff {
		s.Backoff[k] = backoff{b.Until, min(max(b.Times, 0), maxDoubled)}
	}
	maps.DeleteFunc(s.Active, func(_ string, a *active) bool { return a == nil })
	s.Ended = slices.DeleteFunc(s.Ended, func(a *active) bool { return a == nil })
	s.Learn, s.Judged = max(s.Learn, 0), min(max(s.Judged, 0), math.MaxInt64/4)
	return s, nil
}

// restart forgets what another version of the rule has counted. Alerts with the same
// labels fire on to their end, others end now, and so do those that hold for as long as
// something is missing: the new rule has to find that out for itself.
func (s *state) restart(p *plan, position time.Time, now int64) {
	same := s.LabelHash == p.labelHash
	for k, a := range s.Active {
		if !same || a.Lasting {
			s.end(k, now)
		}
	}
	silenced, grown := s.Silenced, s.Backoff
	active, ended := s.Active, s.Ended
	*s = state{Version: stateVersion, Epoch: s.Epoch, Hash: p.hash, LabelHash: p.labelHash, Position: position, Active: active, Ended: ended}
	if same {
		s.Silenced, s.Backoff = silenced, grown
	}
	s.init()
	s.Judged = position.UnixMilli() - p.delay
}

// relabel ends what fires with labels that the rule no longer gives; what it has counted stays.
func (s *state) relabel(p *plan, now int64) {
	for k := range s.Active {
		s.end(k, now)
	}
	s.LabelHash, s.Silenced, s.Backoff = p.labelHash, nil, nil
	s.init()
}

// end moves an alert to what has ended.
func (s *state) end(key string, at int64) {
	a := s.Active[key]
	delete(s.Active, key)
	a.Until = max(at, a.StartsAt)
	s.Ended = append(s.Ended, a)
}

const minute = int64(time.Minute / time.Millisecond)

// termHash is what is remembered of a value: enough to know it again.
func termHash(values ...string) string {
	h := sha256.Sum256([]byte(strings.Join(values, "\x00")))
	return base64.RawStdEncoding.EncodeToString(h[:8])
}
