package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/peers"
)

// tenant of the fleet: the one that a new Muster has.
const tenant = "main"

// regionalName is the one regional's; it is part of a process' name and of a folder's.
const regionalName = "one"

// cluster is one Muster: `muster up` and the processes that it started.
type cluster struct {
	muster  string // path of the binary
	dir     string // of the run; data/ below it is Muster's
	listens *listeners
	cmd     *exec.Cmd
	exited  chan struct{} // closed when `muster up` has ended
	log     *os.File

	sink *sink // nil: Cortex is embedded

	once     sync.Once
	operator *http.Client // see ask
}

func (c *cluster) data() string    { return filepath.Join(c.dir, "data") }
func (c *cluster) logFile() string { return filepath.Join(c.dir, "muster.log") }

// startCluster runs `muster up` on a new directory, with a repository of sites' software and
// without a store of metrics if that is wanted, and waits until all roles are ready.
func startCluster(ctx context.Context, o *Options) (*cluster, error) {
	c := &cluster{muster: o.Muster, dir: o.Dir, exited: make(chan struct{})}
	var err error
	if o.NoStore {
		if c.sink, err = startSink(); err != nil {
			return nil, err
		}
	}
	if err := c.configure(ctx, o.runs(PhaseSoftware)); err != nil {
		return nil, err
	}
	if c.log, err = os.Create(c.logFile()); err != nil {
		return nil, err
	}
	c.cmd = exec.Command(c.muster, "up", "--config", c.configFile(), "--data-dir", c.data())
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	// The roles die with it, and it with this process: with the thread that started it,
	// to be exact, so that thread waits for it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait()
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		_ = c.log.Close()
		return nil, fmt.Errorf("start %s up: %w; `make build` first", c.muster, err)
	}
	return c, until(ctx, "every role to be ready", time.Second/5, func(ctx context.Context) (bool, string, error) {
		select {
		case <-c.exited:
			return false, "", fmt.Errorf("muster up has ended; end of its log:\n%s", c.logTail(4000))
		default:
		}
		for _, role := range c.listens.roles {
			if err := c.ready(ctx, role); err != nil {
				return false, role + ": " + err.Error(), nil
			}
		}
		return true, "", nil
	})
}

// console is the address of the console.
func (c *cluster) console() string { return "http://" + c.listens.addr["console.listen"] }

// configure writes the configuration file, and makes the repository that it names.
func (c *cluster) configure(ctx context.Context, software bool) error {
	sample, err := c.run(ctx, "config", "sample")
	if err != nil {
		return err
	}
	if c.listens, err = listenersOf([]byte(sample)); err != nil {
		return err
	}
	repository := ""
	if software {
		repository = c.repository()
		if _, err := c.run(ctx, "software", "init", "--keys", c.offlineKeys(), "--repository", repository); err != nil {
			return err
		}
	}
	cortex := ""
	if c.sink != nil {
		cortex = c.sink.url
	}
	conf, err := c.listens.config(repository, cortex)
	if err != nil {
		return err
	}
	return os.WriteFile(c.configFile(), conf, 0o600)
}

func (c *cluster) configFile() string { return filepath.Join(c.dir, "muster.yaml") }

func (c *cluster) ready(ctx context.Context, role string) error {
	_, err := c.ask(ctx, role, "/-/ready")
	return err
}

// ask gets a page of a role's ops listener, as the operator.
func (c *cluster) ask(ctx context.Context, role, path string) ([]byte, error) {
	id, known := filepath.Join(c.data(), "control", "identities", "operator"), map[string]peers.Peer{}
	for role, addr := range c.listens.ops {
		known[addr] = peers.Peer{Role: role}
	}
	scheme := "https://"
	if _, err := os.Stat(id); err != nil {
		scheme = "http://" // a Muster from before roles had certificates, or one that has none yet
	}
	c.once.Do(func() {
		p, err := peers.Open(peers.Options{PairFile: filepath.Join(id, identity.PairFile), TrustFile: filepath.Join(id, identity.TrustFile), Lazy: true, TrustDomain: identity.DefaultTrustDomain, Peers: known})
		if err != nil {
			panic(err) // of the options, which are ours
		}
		c.operator = p.Client()
	})
	return getWith(ctx, c.operator, scheme+c.listens.ops[role]+path, nil)
}

func (c *cluster) logTail(n int) string {
	b, _ := os.ReadFile(c.logFile())
	return string(b[max(0, len(b)-n):])
}

// stop ends all processes as Ctrl-C does, by force after 20 s.
func (c *cluster) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-c.exited:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
	_ = c.log.Close()
	if c.sink != nil {
		c.sink.close()
	}
}

// run runs a command of the CLI and returns what it prints.
func (c *cluster) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.muster, append(args, "--data-dir", c.data())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("muster %s: %w: %s", strings.Join(args[:min(2, len(args))], " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// pids finds the roles' processes: the children of `muster up`.
func (c *cluster) pids() map[string]int {
	out := map[string]int{}
	parent := strconv.Itoa(c.cmd.Process.Pid)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if f := statFields(b); len(f) < 2 || f[1] != parent {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if args := strings.Split(string(cmdline), "\x00"); len(args) > 1 && slices.Contains(c.listens.roles, args[1]) {
			out[args[1]] = pid
		}
	}
	return out
}

// statFields are those of /proc/PID/stat after the name, which may hold blanks: state,
// parent, …
func statFields(b []byte) []string {
	_, rest, ok := strings.Cut(string(b[bytes.LastIndexByte(b, ')')+1:]), " ")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

var errStalled = errors.New("stalled")

// until asks ok again and again. When ctx ends first the error says what was waited
// for, and how far it had come.
func until(ctx context.Context, what string, every time.Duration, ok func(context.Context) (done bool, state string, err error)) error {
	began := time.Now()
	for {
		done, state, err := ok(ctx)
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%w: waited %s for %s: %s", errStalled, time.Since(began).Round(time.Second), what, state)
			}
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

func get(ctx context.Context, url string, h http.Header) ([]byte, error) {
	return getWith(ctx, http.DefaultClient, url, h)
}

func getWith(ctx context.Context, client *http.Client, url string, h http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if h != nil {
		req.Header = h
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &answerError{resp.StatusCode, fmt.Sprintf("GET %s: %s: %.300s", url, resp.Status, bytes.TrimSpace(b.Bytes()))}
	}
	return b.Bytes(), nil
}

// answerError is an answer other than 200.
type answerError struct {
	code int
	text string
}

func (e *answerError) Error() string { return e.text }

// final returns the error if asking again won't help: the question was wrong.
func final(err error) error {
	var a *answerError
	if errors.As(err, &a) && a.code/100 == 4 {
		return err
	}
	return nil
}
