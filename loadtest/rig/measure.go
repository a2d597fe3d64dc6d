package rig

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// usage is what a process has used up to a moment.
type usage struct {
	pid     int
	CPU     time.Duration
	RSS     int64 // bytes, now
	Written int64 // bytes handed to the disk
}

// ticksPerSecond is the kernel's USER_HZ, 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// usageOf reads /proc; the zero value: the process is gone.
func usageOf(pid int) usage {
	u := usage{pid: pid}
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return usage{}
	}
	f := statFields(b)
	const utime, stime, rss = 11, 12, 21
	if len(f) <= rss {
		return usage{}
	}
	num := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	u.CPU = time.Duration(num(f[utime])+num(f[stime])) * time.Second / ticksPerSecond
	u.RSS = num(f[rss]) * int64(os.Getpagesize())
	if b, err := os.ReadFile(dir + "/io"); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				u.Written = num(strings.TrimSpace(v))
			}
		}
	}
	return u
}

// own is what this process has used.
func own() usage { return usageOf(os.Getpid()) }

// RoleUse is what a role used in a phase.
type RoleUse struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	RSSBegin   int64   `json:"rssBegin"` // bytes
	RSSEnd     int64   `json:"rssEnd"`
	RSSMax     int64   `json:"rssMax"` // of one look a second
	Written    int64   `json:"written"`
	Restarted  bool    `json:"restarted,omitempty"`
}

// meter watches the roles' processes, and this one, through a phase.
type meter struct {
	c     *cluster
	mu    sync.Mutex
	begin map[string]usage // of the process that runs now
	last  map[string]usage
	use   map[string]*RoleUse
	age   float64 // the largest of the forward queue, seconds
	stop  context.CancelFunc
	done  chan struct{}
}

// generator is the name under which this process stands beside the roles.
const generator = "generator"

func (c *cluster) look() map[string]usage {
	out := map[string]usage{generator: own()}
	for role, pid := range c.pids() {
		if u := usageOf(pid); u.pid != 0 {
			out[role] = u
		}
	}
	return out
}

func startMeter(c *cluster) *meter {
	ctx, cancel := context.WithCancel(context.Background())
	m := &meter{c: c, begin: c.look(), use: map[string]*RoleUse{}, stop: cancel, done: make(chan struct{})}
	m.last = maps.Clone(m.begin)
	for name, u := range m.begin {
		m.use[name] = &RoleUse{RSSBegin: u.RSS, RSSMax: u.RSS}
	}
	go func() {
		defer close(m.done)
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			m.note(c.look())
			if n%10 == 9 {
				if age, err := c.forwardAge(ctx); err == nil {
					m.mu.Lock()
					m.age = max(m.age, age)
					m.mu.Unlock()
				}
			}
		}
	}()
	return m
}

// note takes a look into account; a process that has another pid than before began anew.
func (m *meter) note(now map[string]usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, u := range now {
		use := m.use[name]
		if use == nil {
			use = &RoleUse{}
			m.use[name] = use
		}
		if before := m.last[name]; before.pid != u.pid {
			use.CPUSeconds += (before.CPU - m.begin[name].CPU).Seconds()
			use.Written += before.Written - m.begin[name].Written
			use.Restarted = before.pid != 0
			m.begin[name] = usage{pid: u.pid}
		}
		m.last[name] = u
		use.RSSMax = max(use.RSSMax, u.RSS)
	}
}

// end returns the use of each role, and the largest age of the forward queue.
func (m *meter) end() (map[string]RoleUse, float64) {
	m.stop()
	<-m.done
	m.note(m.c.look())
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]RoleUse{}
	for name, use := range m.use {
		u := *use
		u.CPUSeconds += (m.last[name].CPU - m.begin[name].CPU).Seconds()
		u.Written += m.last[name].Written - m.begin[name].Written
		u.RSSEnd = m.last[name].RSS
		out[name] = u
	}
	return out, m.age
}

// metrics are those of one role at one moment, by name.
type metrics map[string]*dto.MetricFamily

// metrics waits, until ctx ends, for a role that is too busy to answer.
func (c *cluster) metrics(ctx context.Context, role string) (out metrics, err error) {
	err = until(ctx, "the metrics of "+role, time.Second, func(ctx context.Context) (bool, string, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		b, err := c.ask(ctx, role, "/metrics")
		if err != nil {
			return false, err.Error(), final(err)
		}
		out, err = parseMetrics(b)
		return true, "", err
	})
	return out, err
}

func parseMetrics(b []byte) (metrics, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(bytes.NewReader(b))
}

// values are those of a counter or gauge whose labels hold all that are given as name,
// value, ….
func (m metrics) values(name string, labels ...string) []float64 {
	var out []float64
	for _, x := range m[name].GetMetric() {
		has := 0
		for _, l := range x.GetLabel() {
			for i := 0; i+1 < len(labels); i += 2 {
				if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
					has++
				}
			}
		}
		if has == len(labels)/2 {
			out = append(out, x.GetCounter().GetValue()+x.GetGauge().GetValue()+x.GetUntyped().GetValue())
		}
	}
	return out
}

func (m metrics) sum(name string, labels ...string) float64 {
	n := 0.0
	for _, v := range m.values(name, labels...) {
		n += v
	}
	return n
}

func (m metrics) max(name string, labels ...string) float64 {
	n := 0.0
	for _, v := range m.values(name, labels...) {
		n = max(n, v)
	}
	return n
}

// meanSince is a histogram's mean of what came after an earlier look at it; 0 if nothing did.
func (m metrics) meanSince(before metrics, name string) float64 {
	total := func(m metrics) (sum float64, n uint64) {
		for _, x := range m[name].GetMetric() {
			sum += x.GetHistogram().GetSampleSum()
			n += x.GetHistogram().GetSampleCount()
		}
		return sum, n
	}
	s1, n1 := total(before)
	s2, n2 := total(m)
	if n2 <= n1 {
		return 0
	}
	return (s2 - s1) / float64(n2-n1)
}

// forwardAge is how long the oldest sample waits at the regional for the store, in seconds.
func (c *cluster) forwardAge(ctx context.Context) (float64, error) {
	m, err := c.metrics(ctx, "regional")
	if err != nil {
		return 0, err
	}
	return m.max("muster_spool_oldest_age_seconds", "spool", "forward"), nil
}

// diskUse is how many bytes the files below a directory occupy.
func diskUse(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
		return nil
	})
	return n
}

// liveHeap asks a role to collect garbage and returns what is left, in bytes. The
// profile itself goes to a file.
func (c *cluster) liveHeap(ctx context.Context, role string) (int64, error) {
	b, err := c.ask(ctx, role, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no HeapAlloc in its heap profile", role)
}

// profile writes a CPU profile of this long, and then a heap profile, of every role, and
// a CPU profile of this process.
func (c *cluster) profile(ctx context.Context, phase string, long time.Duration) error {
	dir := filepath.Join(c.dir, "profiles")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var own bytes.Buffer
	if err := pprof.StartCPUProfile(&own); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for _, role := range c.listens.roles {
		wg.Go(func() {
			for _, what := range []struct{ name, path string }{{"cpu", "profile?seconds=" + strconv.Itoa(max(1, int(long.Seconds())))}, {"heap", "heap"}} {
				b, err := c.ask(ctx, role, "/debug/pprof/"+what.path)
				if err != nil {
					b = []byte(err.Error())
				}
				_ = os.WriteFile(filepath.Join(dir, phase+"."+role+"."+what.name+".pb.gz"), b, 0o644)
			}
		})
	}
	wg.Wait()
	pprof.StopCPUProfile()
	return os.WriteFile(filepath.Join(dir, phase+"."+generator+".cpu.pb.gz"), own.Bytes(), 0o644)
}
