package registration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster.dev/muster/internal/disk"
)

// Record is one line of the audit file. It never holds a secret.
type Record struct {
	Time       time.Time `json:"time"`
	Result     string    `json:"result"` // a Result
	Tenant     string    `json:"tenant,omitempty"`
	Token      string    `json:"token,omitempty"` // name
	Site       string    `json:"site,omitempty"`
	Key        string    `json:"key,omitempty"` // hash of the public key
	RemoteAddr string    `json:"remoteAddr,omitempty"`
	Agent      string    `json:"agent,omitempty"`
	Message    string    `json:"message,omitempty"`
	// Suppressed counts equal records that came too fast to be written one by one.
	Suppressed int `json:"suppressed,omitempty"`
}

// AuditOptions of OpenAudit; only File is required.
type AuditOptions struct {
	File     string
	MaxBytes int64 // of one file; default 16 MiB
	Keep     int   // older files kept as File.1 … File.N; default 5
	// PerMinute is how many records with the same result and source are written a
	// minute, default 60. What comes faster is counted in one record: a flood of
	// forged tokens must not wash the trail away.
	PerMinute int
	Now       func() time.Time
}

// Audit appends records to a file that is rotated by size. Safe for concurrent use.
type Audit struct {
	opts AuditOptions

	mu      sync.Mutex
	f       *os.File
	size    int64
	windows map[string]*window
	looked  time.Time // when windows were looked at for old ones
}

type window struct {
	began   time.Time
	written int
	last    Record // of the suppressed ones
}

// OpenAudit opens the file for appending, 0600, and makes its directory if missing.
func OpenAudit(o AuditOptions) (*Audit, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 16 << 20
	}
	if o.Keep <= 0 {
		o.Keep = 5
	}
	if o.PerMinute <= 0 {
		o.PerMinute = 60
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(o.File), 0o700); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	a := &Audit{opts: o, windows: map[string]*window{}}
	return a, a.open()
}

func (a *Audit) open() error {
	f, err := os.OpenFile(a.opts.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("audit: %w", err)
	}
	a.f, a.size = f, st.Size()
	return nil
}

// Write appends a record; source is who it is counted against (an address or a site).
func (a *Audit) Write(source string, r Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.opts.Now()
	if err := a.closeWindowsLocked(now, false); err != nil {
		return err
	}
	if r.Time.IsZero() {
		r.Time = now.UTC()
	}
	key := r.Result + " " + source
	w := a.windows[key]
	if w == nil {
		if len(a.windows) >= 4096 { // many sources: they share one window a result
			key = r.Result
		}
		if w = a.windows[key]; w == nil {
			w = &window{began: now}
			a.windows[key] = w
		}
	}
	if w.written++; w.written > a.opts.PerMinute {
		w.last = r
		return nil
	}
	return a.appendLocked(r)
}

// closeWindowsLocked ends the windows that are a minute old. Each source has one, so that they are looked at
// once a second, not with each of thousands of sites that register at once.
func (a *Audit) closeWindowsLocked(now time.Time, all bool) error {
	if since := now.Sub(a.looked); !all && since >= 0 && since < time.Second {
		return nil
	}
	a.looked = now
	for key, w := range a.windows {
		if !all && now.Sub(w.began) < time.Minute {
			continue
		}
		delete(a.windows, key)
		if n := w.written - a.opts.PerMinute; n > 0 {
			w.last.Suppressed = n
			if err := a.appendLocked(w.last); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Audit) appendLocked(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	line = append(line, '\n')
	if a.f == nil { // an earlier rotation failed half-way
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.size > 0 && a.size+int64(len(line)) > a.opts.MaxBytes {
		if err := a.rotateLocked(); err != nil {
			return err
		}
	}
	n, err := a.f.Write(line)
	a.size += int64(n)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (a *Audit) rotateLocked() error {
	a.f.Close()
	a.f = nil
	name := func(i int) string { return fmt.Sprintf("%s.%d", a.opts.File, i) }
	for i := a.opts.Keep - 1; i >= 1; i-- {
		if err := os.Rename(name(i), name(i+1)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("audit: rotate: %w", err)
		}
	}
	if err := os.Rename(a.opts.File, name(1)); err != nil {
		return fmt.Errorf("audit: rotate: %w", err)
	}
	return a.open()
}

// Close writes what was suppressed and closes the file.
func (a *Audit) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.closeWindowsLocked(a.opts.Now(), true)
	if a.f != nil {
		if cerr := a.f.Close(); err == nil {
			err = cerr
		}
		a.f = nil
	}
	return err
}
