package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/wire"
)

// maxSpansOfOne is how many times of firing one alert keeps.
const maxSpansOfOne = 100

var (
	bucketSpans  = []byte("spans")  // fingerprint, start (8 bytes) → end (8 bytes, 0: fires)
	bucketAlerts = []byte("alerts") // fingerprint → the Alert as last seen
)

// history keeps when alerts fired. Safe for concurrent use.
type history struct {
	db    *bolt.DB
	age   time.Duration
	limit int

	mu   sync.Mutex
	open map[string]string // keys of the spans that are open → fingerprint
}

func openHistory(file string, age time.Duration, limit int) (*history, error) {
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(file), 0o700); err != nil {
		return nil, historyError("open", err)
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{Timeout: 5 * time.Second, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, historyError("open "+file, err)
	}
	h := &history{db: db, age: age, limit: limit, open: map[string]string{}}
	err = db.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucketIfNotExists(bucketAlerts); err != nil {
			return err
		}
		spans, err := tx.CreateBucketIfNotExists(bucketSpans)
		if err != nil {
			return err
		}
		return spans.ForEach(func(k, v []byte) error {
			if len(k) > 8 && binaryTime(v) == 0 {
				h.open[string(k)] = string(k[:len(k)-8])
			}
			return nil
		})
	})
	if err != nil {
		_ = db.Close()
		return nil, historyError("open "+file, err)
	}
	return h, nil
}

func (h *history) close() error { return h.db.Close() }

func spanKey(fingerprint string, start time.Time) string {
	return string(binary.BigEndian.AppendUint64([]byte(fingerprint), uint64(start.UnixNano())))
}

func binaryTime(v []byte) int64 {
	if len(v) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

// stillOpen lists the alerts that fired when the history was last written.
func (h *history) stillOpen() ([]wire.KnownAlert, error) {
	var out []wire.KnownAlert
	err := h.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketAlerts)
		for _, fp := range h.open {
			var a wire.KnownAlert
			// A broken entry, of another version perhaps, is no reason not to start.
			if v := b.Get([]byte(fp)); v != nil && json.Unmarshal(v, &a) == nil && a.Fingerprint == fp {
				out = append(out, a)
			}
		}
		return nil
	})
	if err != nil {
		return nil, historyError("read", err)
	}
	return out, nil
}

// record writes what began and ended since the last call; nothing if nothing did.
func (h *history) record(now time.Time, firing []*wire.KnownAlert) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	is := make(map[string]bool, len(firing))
	var began []*wire.KnownAlert
	for _, a := range firing {
		k := spanKey(a.Fingerprint, a.StartsAt)
		is[k] = true
		if _, known := h.open[k]; !known {
			began = append(began, a)
		}
	}
	var ended []string
	for k := range h.open {
		if !is[k] {
			ended = append(ended, k)
		}
	}
	if len(began) == 0 && len(ended) == 0 {
		return nil
	}
	slices.Sort(ended)
	err := h.db.Update(func(tx *bolt.Tx) error {
		spans, alerts := tx.Bucket(bucketSpans), tx.Bucket(bucketAlerts)
		for _, a := range began {
			b, err := json.Marshal(a)
			if err != nil {
				return err
			}
			if err := alerts.Put([]byte(a.Fingerprint), b); err != nil {
				return err
			}
			if err := spans.Put([]byte(spanKey(a.Fingerprint, a.StartsAt)), make([]byte, 8)); err != nil {
				return err
			}
			if err := trim(spans, a.Fingerprint); err != nil {
				return err
			}
		}
		for _, k := range ended {
			if err := spans.Put([]byte(k), binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return historyError("write", err)
	}
	for _, a := range began {
		h.open[spanKey(a.Fingerprint, a.StartsAt)] = a.Fingerprint
	}
	for _, k := range ended {
		delete(h.open, k)
	}
	return nil
}

// trim removes the oldest spans of one alert.
func trim(spans *bolt.Bucket, fingerprint string) error {
	keys := keysOf(spans, fingerprint)
	for len(keys) > maxSpansOfOne {
		if err := spans.Delete(keys[0]); err != nil {
			return err
		}
		keys = keys[1:]
	}
	return nil
}

func keysOf(spans *bolt.Bucket, fingerprint string) [][]byte {
	var keys [][]byte
	prefix := []byte(fingerprint)
	c := spans.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		if len(k) == len(prefix)+8 {
			keys = append(keys, bytes.Clone(k))
		}
	}
	return keys
}

// of returns an alert as last seen, nil if never, and its spans, newest first.
func (h *history) of(fingerprint string) (*wire.KnownAlert, []wire.AlertSpan, error) {
	var a *wire.KnownAlert
	spans := []wire.AlertSpan{}
	err := h.db.View(func(tx *bolt.Tx) error {
		v := tx.Bucket(bucketAlerts).Get([]byte(fingerprint))
		if v == nil {
			return nil
		}
		a = &wire.KnownAlert{}
		if err := json.Unmarshal(v, a); err != nil {
			return err
		}
		b := tx.Bucket(bucketSpans)
		for _, k := range slices.Backward(keysOf(b, fingerprint)) {
			s := wire.AlertSpan{StartsAt: time.Unix(0, int64(binary.BigEndian.Uint64(k[len(k)-8:]))).UTC()}
			if end := binaryTime(b.Get(k)); end != 0 {
				t := time.Unix(0, end).UTC()
				s.EndsAt = &t
			}
			spans = append(spans, s)
		}
		return nil
	})
	if err != nil {
		return nil, nil, historyError("read "+fingerprint, err)
	}
	return a, spans, nil
}

// prune removes what is older than the age, and the oldest beyond the limit. What
// fires stays.
func (h *history) prune(now time.Time) error {
	err := h.db.Update(func(tx *bolt.Tx) error {
		type ended struct {
			key string
			end int64
		}
		spans, alerts := tx.Bucket(bucketSpans), tx.Bucket(bucketAlerts)
		var all []ended
		total := 0
		err := spans.ForEach(func(k, v []byte) error {
			total++
			if end := binaryTime(v); end != 0 {
				all = append(all, ended{string(k), end})
			}
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(a, b ended) int { return int(min(max(a.end-b.end, -1), 1)) })
		oldest := now.Add(-h.age).UnixNano()
		for _, e := range all {
			if e.end >= oldest && total <= h.limit {
				break
			}
			if err := spans.Delete([]byte(e.key)); err != nil {
				return err
			}
			total--
			if fp := e.key[:max(len(e.key)-8, 0)]; len(keysOf(spans, fp)) == 0 {
				if err := alerts.Delete([]byte(fp)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return historyError("prune", err)
	}
	return nil
}
