package relay

import "github.com/prometheus/client_golang/prometheus"

// metrics exports Status at each scrape.
type metrics struct {
	r                                                      *Relay
	connected, sites, due, revoked, blobs, bytes, sinceLen *prometheus.Desc
	held, refused, pending                                 *prometheus.Desc
}

func newMetrics(r *Relay, reg prometheus.Registerer) *metrics {
	d := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("muster_relay_"+name, help, nil, nil)
	}
	m := &metrics{
		r:         r,
		connected: d("control_connected", "1 while the stream to control is up."),
		sinceLen:  d("control_state_seconds", "For how long the stream to control has been up, or down."),
		sites:     d("sites", "Sites with a stream."),
		due:       d("sites_due", "Sites with something that control does not know yet."),
		revoked:   d("revoked_sites", "Sites whose certificates are refused."),
		blobs:     d("blobs", "Blobs in the cache."),
		bytes:     d("blob_bytes", "Bytes of the blobs in the cache."),
		held:      d("regional_items", "Inventories and rules of tenants that the regional itself was handed."),
		refused:   d("regional_refused", "Errors of those: what is not in effect."),
		pending:   d("regional_pending", "1 while control wants other inventories or rules than were handed on."),
	}
	reg.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.connected, m.sinceLen, m.sites, m.due, m.revoked, m.blobs, m.bytes, m.held, m.refused, m.pending} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st := m.r.Status()
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	up := 0.0
	if st.Connected {
		up = 1
	}
	gauge(m.connected, up)
	gauge(m.sinceLen, m.r.opts.Now().Sub(st.Since).Seconds())
	gauge(m.sites, float64(st.Sites))
	gauge(m.due, float64(st.Due))
	gauge(m.revoked, float64(st.Revoked))
	gauge(m.blobs, float64(st.Blobs))
	gauge(m.bytes, float64(st.BlobBytes))
	gauge(m.held, float64(st.Held.Items))
	gauge(m.refused, float64(st.Held.Refused))
	pending := 0.0
	if st.Held.Pending {
		pending = 1
	}
	gauge(m.pending, pending)
}
