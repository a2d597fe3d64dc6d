package software

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests   *prometheus.CounterVec
	sent       prometheus.Counter
	held       prometheus.Counter
	unselected prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	m := &metrics{
		requests:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_software_requests_total", Help: "Requests of sites for software and its metadata, by the status of the answer."}, []string{"code"}),
		sent:       prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_software_sent_bytes_total", Help: "Bytes of software that sites were sent."}),
		held:       prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_software_held_questions_total", Help: "Requests for what is not here that were not passed on to the centre, because a site or a tenant asked for too much."}),
		unselected: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_software_unselected_requests_total", Help: "Requests of sites for files of software that no policy selects for them."}),
	}
	reg.MustRegister(m.requests, m.sent, m.held, m.unselected)
	figure := func(name, help string, kind func(prometheus.GaugeOpts, func() float64), of func() float64) {
		kind(prometheus.GaugeOpts{Name: name, Help: help}, of)
	}
	gauge := func(o prometheus.GaugeOpts, of func() float64) { reg.MustRegister(prometheus.NewGaugeFunc(o, of)) }
	counter := func(o prometheus.GaugeOpts, of func() float64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(o), of))
	}
	figure("muster_software_downloads", "Downloads of software under way.", gauge, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.used)
	})
	figure("muster_software_cache_bytes", "Bytes of software that the cache holds.", gauge, func() float64 { return float64(s.cache.Stats().Bytes) })
	figure("muster_software_cache_files", "Files of software that the cache holds.", gauge, func() float64 { return float64(s.cache.Stats().Files) })
	figure("muster_software_fetches_total", "Files that the centre was asked for.", counter, func() float64 { return float64(s.cache.Stats().Asked) })
	figure("muster_software_fetched_bytes_total", "Bytes of files that came from the centre.", counter, func() float64 { return float64(s.cache.Stats().Fetched) })
	figure("muster_software_fetch_failures_total", "Files that did not come from the centre; those that it does not have are not counted.", counter, func() float64 { return float64(s.cache.Stats().Failed) })
	figure("muster_software_cache_disk_errors_total", "Failures to write software to the disk, which may be full.", counter, func() float64 { return float64(s.cache.Stats().Disk) })
	return m
}
