// Package up runs all roles of Muster on one machine, each as a child process of
// this same binary: started when what it needs is ready, logged with a prefix,
// restarted with backoff when it dies, and stopped within 10 s. It knows processes
// and readiness URLs, nothing of what the roles do.
package up

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster.dev/muster/internal/disk"
)

// Process is one child to keep running.
type Process struct {
	Name       string
	Executable string // path; empty: this binary
	Args       []string
	Env        []string // added to the environment
	Ready      string   // URL that answers 200 once the process is ready
	After      []string // names of processes that must be ready first
}

// Options of a Supervisor.
type Options struct {
	Executable string // path of the binary; empty: this one
	Dir        string // data directory; locked while the supervisor runs
	Out        io.Writer
	Log        *slog.Logger
	// Transport asks whether processes are ready; nil: a plain one.
	Transport http.RoundTripper
	// Backoff before a restart: doubles from Min to Max, and starts anew after the
	// process was ready for a minute.
	MinBackoff, MaxBackoff time.Duration
	// StopTimeout is how long children may take to stop before they are killed.
	StopTimeout time.Duration
}

// Supervisor keeps the processes running. Make it with New, run it once.
type Supervisor struct {
	o     Options
	procs []Process
	lock  *disk.Lock
	out   *prefixWriter

	mu    sync.Mutex
	ready map[string]chan struct{} // closed once ready for the first time
	pids  map[string]int
}

// New takes the data directory and returns a supervisor for the processes.
func New(o Options, procs []Process) (*Supervisor, error) {
	if o.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this binary: %w", err)
		}
		o.Executable = exe
	}
	if o.MinBackoff == 0 {
		o.MinBackoff, o.MaxBackoff = 500*time.Millisecond, 15*time.Second
	}
	if o.StopTimeout == 0 {
		o.StopTimeout = 9 * time.Second
	}
	if err := disk.MkdirAll(disk.OS{}, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := disk.LockFile(filepath.Join(o.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	width := 0
	s := &Supervisor{o: o, procs: procs, lock: lock, ready: map[string]chan struct{}{}, pids: map[string]int{}}
	for _, p := range procs {
		s.ready[p.Name] = make(chan struct{})
		width = max(width, len(p.Name))
	}
	s.out = &prefixWriter{w: o.Out, width: width}
	return s, nil
}

// Ready is closed when the process was ready for the first time.
func (s *Supervisor) Ready(name string) <-chan struct{} { return s.ready[name] }

// PIDs returns the process ids of the running children by name.
func (s *Supervisor) PIDs() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.pids))
	for k, v := range s.pids {
		out[k] = v
	}
	return out
}

// Run keeps the processes running until ctx ends, then stops them, those that
// depend on others first, and gives the data directory back.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.lock.Close()
	// Children are told by the kernel to die with their parent thread, so that
	// even kill -9 of this process leaves nothing behind. That thread has to live
	// as long as this process: all forks happen on one locked goroutine.
	forks := make(chan func())
	stopForks := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		for {
			select {
			case f := <-forks:
				f()
			case <-stopForks:
				return
			}
		}
	}()
	defer close(stopForks)

	stop := make([]chan struct{}, len(s.procs))
	done := make([]chan struct{}, len(s.procs))
	for i, p := range s.procs {
		stop[i], done[i] = make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done[i])
			s.keep(p, forks, stop[i])
		}()
	}
	<-ctx.Done()
	return s.stopAll(stop, done)
}

func (s *Supervisor) stopAll(stop, done []chan struct{}) error {
	deadline := time.Now().Add(s.o.StopTimeout)
	// Waves from the last to the first: a process stops before what it needs.
	for _, wave := range s.waves() {
		for _, i := range wave {
			close(stop[i])
		}
		for _, i := range wave {
			select {
			case <-done[i]:
			case <-time.After(min(time.Until(deadline), s.o.StopTimeout/2)):
			}
		}
	}
	for i := range s.procs {
		select {
		case <-done[i]:
			continue
		case <-time.After(time.Until(deadline)):
		}
		if pid := s.PIDs()[s.procs[i].Name]; pid > 0 {
			s.o.Log.Warn("did not stop in time, killing it", "process", s.procs[i].Name)
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		<-done[i]
	}
	return nil
}

// waves groups the processes so that each wave depends only on later ones.
func (s *Supervisor) waves() [][]int {
	depth := map[string]int{}
	var of func(name string) int
	of = func(name string) int {
		if d, ok := depth[name]; ok {
			return d
		}
		d := 0
		for _, p := range s.procs {
			if p.Name == name {
				for _, need := range p.After {
					d = max(d, of(need)+1)
				}
			}
		}
		depth[name] = d
		return d
	}
	var waves [][]int
	for i, p := range s.procs {
		d := of(p.Name)
		for len(waves) <= d {
			waves = append(waves, nil)
		}
		waves[d] = append(waves[d], i)
	}
	for i, j := 0, len(waves)-1; i < j; i, j = i+1, j-1 {
		waves[i], waves[j] = waves[j], waves[i]
	}
	return waves
}

// keep runs one process over and over until stop is closed.
func (s *Supervisor) keep(p Process, forks chan<- func(), stop <-chan struct{}) {
	for _, need := range p.After {
		select {
		case <-s.ready[need]:
		case <-stop:
			return
		}
	}
	backoff := s.o.MinBackoff
	for {
		ranReady, err := s.once(p, forks, stop)
		select {
		case <-stop:
			return
		default:
		}
		if ranReady > time.Minute {
			backoff = s.o.MinBackoff
		}
		s.o.Log.Error("process died; starting it again", "process", p.Name, "err", err, "in", backoff)
		select {
		case <-stop:
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, s.o.MaxBackoff)
	}
}

// once runs the process and returns how long it was ready.
func (s *Supervisor) once(p Process, forks chan<- func(), stop <-chan struct{}) (time.Duration, error) {
	cmd := exec.Command(cmp.Or(p.Executable, s.o.Executable), p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	w := s.out.of(p.Name)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.WaitDelay = time.Second
	started := make(chan error, 1)
	forks <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.pids[p.Name] = cmd.Process.Pid
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pids, p.Name)
		s.mu.Unlock()
		w.flush()
	}()

	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	readyCtx, cancel := context.WithCancel(context.Background())
	defer cancel()
	becameReady := make(chan time.Time, 1)
	go s.awaitReady(readyCtx, p, becameReady)

	term := stop
	for {
		select {
		case err := <-exited:
			if err == nil {
				err = errors.New("it ended by itself")
			}
			select {
			case at := <-becameReady:
				return time.Since(at), err
			default:
				return 0, err
			}
		case <-term:
			term = nil
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

func (s *Supervisor) awaitReady(ctx context.Context, p Process, became chan<- time.Time) {
	if p.Ready == "" {
		return
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: s.o.Transport}
	for began := time.Now(); ctx.Err() == nil; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Ready, nil)
		if err != nil {
			return
		}
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				became <- time.Now()
				s.o.Log.Info("ready", "process", p.Name, "after", time.Since(began).Round(10*time.Millisecond))
				s.mu.Lock()
				select {
				case <-s.ready[p.Name]:
				default:
					close(s.ready[p.Name])
				}
				s.mu.Unlock()
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// prefixWriter keeps the lines of several processes whole and names each one's.
type prefixWriter struct {
	mu    sync.Mutex
	w     io.Writer
	width int
}

func (p *prefixWriter) of(name string) *lineWriter {
	return &lineWriter{to: p, prefix: fmt.Sprintf("%-*s | ", p.width, name)}
}

type lineWriter struct {
	to     *prefixWriter
	prefix string
	mu     sync.Mutex
	rest   []byte
}

const maxLine = 64 << 10

// Write implements io.Writer.
func (l *lineWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		adv, line, _ := bufio.ScanLines(l.rest, false)
		if adv == 0 && len(l.rest) > maxLine {
			adv, line = len(l.rest), l.rest
		}
		if adv == 0 {
			return len(b), nil
		}
		l.emit(line)
		l.rest = l.rest[adv:]
	}
}

func (l *lineWriter) emit(line []byte) {
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, _ = io.WriteString(l.to.w, l.prefix+strings.TrimRight(string(line), "\r")+"\n")
}

func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.emit(l.rest)
		l.rest = nil
	}
}
