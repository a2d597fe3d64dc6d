package cost

import "github.com/prometheus/client_golang/prometheus"

var (
	descSeries  = desc("series", "Series that the head of the edge engine holds of a tenant.")
	descSamples = desc("samples_per_second", "Samples taken of a tenant, over the last minutes.")
	descWire    = desc("wire_bytes_per_second", "Bytes of a tenant's pushes as they came, over the last minutes.")
	descLogs    = desc("log_bytes_per_second", "Bytes of a tenant's log lines, over the last minutes.")
	descCPU     = desc("cpu_cores", "An estimate of a tenant's share of the process' processor time.")
	descMemory  = desc("memory_bytes", "An estimate of a tenant's share of the process' memory.")
	descMore    = prometheus.NewDesc("muster_cost_more_sites", "How many more sites like its mean this regional carries, by resource; absent where that is not known.", []string{"resource"}, nil)
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("muster_cost_tenant_"+name, help, []string{"tenant"}, nil)
}

// Describe implements prometheus.Collector.
func (m *Meter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descSeries, descSamples, descWire, descLogs, descCPU, descMemory, descMore} {
		ch <- d
	}
}

// Collect implements prometheus.Collector: a few figures of each tenant, none of a site.
func (m *Meter) Collect(ch chan<- prometheus.Metric) {
	c := m.Cost()
	for i := range c.Tenants {
		t := &c.Tenants[i]
		for _, x := range []struct {
			desc *prometheus.Desc
			v    float64
		}{{descSeries, float64(t.Series)}, {descSamples, t.SamplesPerSecond}, {descWire, t.WireBytesPerSecond}, {descLogs, t.LogBytesPerSecond}, {descCPU, t.CPUCores}, {descMemory, t.MemoryBytes}} {
			ch <- prometheus.MustNewConstMetric(x.desc, prometheus.GaugeValue, x.v, t.Tenant)
		}
	}
	for _, r := range c.Headroom.Resources {
		if r.MoreSites != nil {
			ch <- prometheus.MustNewConstMetric(descMore, prometheus.GaugeValue, float64(*r.MoreSites), r.Name)
		}
	}
}
