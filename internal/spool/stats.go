package spool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Stats is the state of a spool at one moment. The counts are since Open.
type Stats struct {
	Pending   uint64        // records not acknowledged, in flight included
	InFlight  int           // of these, handed out by Next
	Bytes     int64         // of the pending records
	DiskBytes int64         // of all files; what MaxBytes bounds
	MaxBytes  int64         // the cap now; 0: none
	OldestAge time.Duration // of the oldest pending record; 0 when there is none

	Appended, Acked uint64
	Dropped         Dropped
	SyncErrors      uint64
	// SyncFailing: the last sync failed, and what was written since the one before may
	// not survive power loss.
	SyncFailing bool
	// DiskFull: the disk has no room to grow, whatever MaxBytes says.
	DiskFull bool
}

// Dropped counts lost records by reason.
type Dropped struct {
	Size    uint64 // oldest records, to stay below MaxBytes
	Age     uint64 // older than MaxAge
	Corrupt uint64 // damaged on disk, or gone from it
	Refused uint64 // appends that failed with ErrFull or ErrSync
}

// Total is the number of records that were in the spool and are lost.
func (d Dropped) Total() uint64 { return d.Size + d.Age + d.Corrupt }

// Stats returns the state now.
func (s *Spool) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	st := Stats{
		Pending: s.pending, InFlight: len(s.out), Bytes: s.pendBytes, DiskBytes: s.diskBytes, MaxBytes: s.opts.MaxBytes,
		Appended: c.appended, Acked: c.acked, SyncErrors: c.syncErrors, SyncFailing: s.syncErr != nil, DiskFull: s.space.full,
		Dropped: Dropped{Size: c.droppedSize, Age: c.droppedAge, Corrupt: c.droppedBad, Refused: c.refused},
	}
	var oldest time.Time
	if s.pos.seq < s.next { // zero: not known
		oldest = s.pos.time
	}
	for _, o := range s.out {
		if oldest.IsZero() || o.time.Before(oldest) {
			oldest = o.time
		}
	}
	if !oldest.IsZero() {
		st.OldestAge = max(0, s.opts.Now().Sub(oldest))
	}
	return st
}

// metrics exports Stats at each scrape.
type metrics struct {
	s                                                                                            *Spool
	pending, inFlight, bytes, disk, limit, oldest, appended, acked, dropped, serr, failing, full *prometheus.Desc
}

func newMetrics(s *Spool) *metrics {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("muster_spool_"+name, help, labels, nil)
	}
	return &metrics{
		s:        s,
		pending:  d("pending_records", "Records in the spool that are not acknowledged."),
		inFlight: d("in_flight_records", "Records that are being sent."),
		bytes:    d("pending_bytes", "Bytes of the records that are not acknowledged."),
		disk:     d("disk_bytes", "Bytes of all files of the spool."),
		limit:    d("max_bytes", "Cap of the spool's files; 0 means none."),
		oldest:   d("oldest_age_seconds", "Age of the oldest record that is not acknowledged; 0 when there is none."),
		appended: d("appended_records_total", "Records appended."),
		acked:    d("acked_records_total", "Records acknowledged."),
		dropped:  d("dropped_records_total", "Records lost: size and age are the caps, corrupt is damage on disk, refused did not get in.", "reason"),
		serr:     d("sync_errors_total", "Failed syncs to stable storage."),
		failing:  d("sync_failing", "1 while the last sync failed: the disk may not keep what is written to it."),
		full:     d("disk_full", "1 while the spool does not grow because the disk is full."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.pending, m.inFlight, m.bytes, m.disk, m.limit, m.oldest, m.appended, m.acked, m.dropped, m.serr, m.failing, m.full} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st := m.s.Stats()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(m.pending, float64(st.Pending))
	gauge(m.inFlight, float64(st.InFlight))
	gauge(m.bytes, float64(st.Bytes))
	gauge(m.disk, float64(st.DiskBytes))
	gauge(m.limit, float64(st.MaxBytes))
	gauge(m.oldest, st.OldestAge.Seconds())
	counter(m.appended, st.Appended)
	counter(m.acked, st.Acked)
	counter(m.dropped, st.Dropped.Size, "size")
	counter(m.dropped, st.Dropped.Age, "age")
	counter(m.dropped, st.Dropped.Corrupt, "corrupt")
	counter(m.dropped, st.Dropped.Refused, "refused")
	counter(m.serr, st.SyncErrors)
	gauge(m.failing, oneIf(st.SyncFailing))
	gauge(m.full, oneIf(st.DiskFull))
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
