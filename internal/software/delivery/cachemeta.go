package delivery

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"sync"
	"time"
)

const (
	// maxMetadata is how much is held in memory, names and bytes: whoever asks for old
	// numbers gets them, and they go first.
	maxMetadata, maxMetadataBytes = 1024, 64 << 20
	// awayFor is how long the centre is not asked for metadata after it did not answer,
	// and answerIn how long it has for that.
	awayFor, answerIn = 10 * time.Second, 15 * time.Second
)

// metadataCache holds signed metadata in memory. What has a number in its name never
// changes; that there is no such number yet does.
type metadataCache struct {
	mu    sync.Mutex
	known map[string]metadataEntry
	bytes int
	away  time.Time // until then

	asked sync.Mutex // one question at a time
}

type metadataEntry struct {
	b        []byte // nil: there is none
	at, used time.Time
}

func (c *Cache) serveMetadata(w http.ResponseWriter, r *http.Request, name string) {
	e, err := c.metadataOf(r, name)
	switch {
	case err != nil:
		c.refuse(w, err)
	case e.b == nil:
		http.Error(w, "there is no "+name, http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(e.b)
	}
}

// metadataOf returns what is known, which may be old while the centre is away.
func (c *Cache) metadataOf(r *http.Request, name string) (metadataEntry, error) {
	m := &c.metadata
	e, fresh := c.have(name)
	if fresh {
		return e, nil
	}
	m.asked.Lock()
	defer m.asked.Unlock()
	if e, fresh = c.have(name); fresh {
		return e, nil
	}
	if e.at.IsZero() && c.o.MayAsk != nil && !c.o.MayAsk(r) {
		return e, errTooMany
	}
	m.mu.Lock()
	away := c.now().Before(m.away)
	m.mu.Unlock()
	if away {
		return e, missingUnless(e, errAway)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerIn)
	defer cancel()
	b, err := c.o.Upstream.Metadata(ctx, name, 16<<20)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.away = c.now().Add(min(awayFor, c.o.MetadataFor))
		return e, missingUnless(e, err)
	}
	if err == nil && b == nil {
		b = []byte{}
	}
	return m.keepLocked(name, metadataEntry{b: b, at: c.now(), used: c.now()}), nil
}

var errAway = errors.New("it did not answer a moment ago")

// missingUnless is nil if the entry can be served instead.
func missingUnless(e metadataEntry, err error) error {
	if e.at.IsZero() {
		return err
	}
	return nil
}

func (c *Cache) have(name string) (e metadataEntry, fresh bool) {
	m := &c.metadata
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.known[name]
	if !ok {
		return e, false
	}
	e.used = c.now()
	m.known[name] = e
	numbered := name[0] >= '0' && name[0] <= '9'
	return e, numbered && e.b != nil || c.now().Sub(e.at) < c.o.MetadataFor
}

func (m *metadataCache) keepLocked(name string, e metadataEntry) metadataEntry {
	m.bytes += len(e.b) - len(m.known[name].b)
	m.known[name] = e
	for len(m.known) > 1 && (len(m.known) > maxMetadata || m.bytes > maxMetadataBytes) {
		oldest := ""
		for other, o := range m.known {
			if other != name && (oldest == "" || o.used.Before(m.known[oldest].used)) {
				oldest = other
			}
		}
		m.bytes -= len(m.known[oldest].b)
		delete(m.known, oldest)
	}
	return e
}
