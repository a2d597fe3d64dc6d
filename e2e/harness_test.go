package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	console = "http://127.0.0.1:8080"
	cortex  = "https://127.0.0.1:9009"
	tenant  = "demo"
	sites   = 60
)

// fleet is a running demo.
type fleet struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	out   *syncBuffer
	began time.Time
	token string
	rang  []string // sites by which faultToPhone made it ring
	// last is what a part that failed has to say, which stands at the very end: of a long
	// output often no more is kept.
	last []string
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *syncBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func bin(name string) string {
	p, err := filepath.Abs(filepath.Join("..", "bin", name))
	if err != nil {
		panic(err)
	}
	return p
}

// start runs the demo on dir. The caller stops it.
func start(t *testing.T, dir string) *fleet {
	t.Helper()
	return run(t, dir, "muster", "demo")
}

// run is start of a program that takes the demo's flags.
func run(t *testing.T, dir, program string, args ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: dir, out: &syncBuffer{}, began: time.Now()}
	f.cmd = exec.Command(bin(program), append(args, "--data-dir", dir, "--sites", strconv.Itoa(sites))...)
	f.cmd.Dir = ".." // as make runs it
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f.cmd.Stdout, f.cmd.Stderr = f.out, f.out
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("start the demo: %v; `make build` first", err)
	}
	t.Cleanup(func() {
		if t.Failed() { // before the stop, of which sixty sites have much to say
			t.Logf("end of the demo's output:\n%s\nwhat its log complained of last:\n%s", tail([]byte(f.out.String()), 1500), complaints(filepath.Join(dir, "demo", "muster.log")))
			for _, l := range f.last {
				t.Log(l)
			}
		}
		f.stop()
	})
	return f
}

// complaints are the last warnings and errors of a log.
func complaints(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			out = append(out, line)
		}
	}
	return string(tail([]byte(strings.Join(out, "")), 3000))
}

func tail(b []byte, n int) []byte {
	if len(b) > n {
		return b[len(b)-n:]
	}
	return b
}

// stop ends the demo as Ctrl-C does, which is for its process group, and returns how long that took.
func (f *fleet) stop() time.Duration {
	if f.cmd.ProcessState != nil {
		return 0
	}
	began := time.Now()
	_ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGINT)
	_ = f.cmd.Wait()
	return time.Since(began)
}

// ended tells whether the demo has ended by itself.
func (f *fleet) ended() bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.cmd.Process.Pid))
	return bytes.Contains(b, []byte(") Z "))
}

// get asks the HTTP API as a user with the admin's token.
func (f *fleet) get(path string, out any) error {
	if f.token == "" {
		b, err := os.ReadFile(filepath.Join(f.dir, "admin.token"))
		if err != nil {
			return err
		}
		f.token = strings.TrimSpace(string(b))
	}
	return getJSON(console+path, http.Header{"Authorization": {"Bearer " + f.token}}, out)
}

// call changes something through the HTTP API as that user.
func (f *fleet) call(method, path, body string) error {
	req, err := http.NewRequest(method, console+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + f.token}, "Content-Type": {"application/json"}}
	resp, err := (&http.Client{Timeout: 15 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, tail(b, 500))
	}
	return nil
}

func getJSON(url string, h http.Header, out any) error {
	b, err := getBody(url, h)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// getBody reads what stands at url; another answer than 200 is an error.
func getBody(url string, h http.Header) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	return bodyOf(&http.Client{Timeout: 15 * time.Second}, req)
}

// asOperator asks a role, as curl does on the control machine with the operator's
// certificate.
func (f *fleet) asOperator(url string, h http.Header) ([]byte, error) {
	return f.asRole("operator", url, h)
}

// asRole asks a role with the certificate of another one.
func (f *fleet) asRole(role, url string, h http.Header) ([]byte, error) {
	id := filepath.Join(f.dir, "control", "identities", role)
	pair, err := tls.LoadX509KeyPair(filepath.Join(id, "tls.pem"), filepath.Join(id, "tls.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(id, "ca-certs.pem"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}, DisableKeepAlives: true}
	return bodyOf(&http.Client{Timeout: 15 * time.Second, Transport: t}, req)
}

func bodyOf(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &answerError{resp.StatusCode, fmt.Sprintf("GET %s: %s: %s", req.URL, resp.Status, tail(b, 500))}
	}
	return b, nil
}

// answerError is an answer other than 200.
type answerError struct {
	code int
	text string
}

func (e *answerError) Error() string { return e.text }

// joinFlags are the flags of the command that `muster token create` prints.
func (f *fleet) joinFlags(t *testing.T, args ...string) map[string]string {
	t.Helper()
	out := f.muster(append([]string{"token", "create", "--auto-approve", "--label", "region=eu"}, args...)...)
	flags := map[string]string{}
	for _, flag := range []string{"--server", "--ca-hash", "--token"} {
		m := regexp.MustCompile(flag + ` (\S+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("muster token create did not print %s:\n%s", flag, out)
		}
		flags[flag] = m[1]
	}
	return flags
}

type site struct {
	Name       string   `json:"name"`
	Tenant     string   `json:"tenant"`
	Phase      string   `json:"phase"`
	Score      *float64 `json:"score"`
	Colour     string   `json:"colour"`
	Dimensions map[string]struct {
		Score  *float64 `json:"score"`
		Colour string   `json:"colour"`
		Known  bool     `json:"known"`
	} `json:"dimensions"`
	Maintenance *struct {
		Reason string `json:"reason"`
	} `json:"maintenance"`
	Reasons []struct {
		Dimension string `json:"dimension"`
		Signal    string `json:"signal"`
		Text      string `json:"text"`
	} `json:"reasons"`
}

func (f *fleet) sites() (map[string]site, error) {
	var list struct {
		Sites []site `json:"sites"`
	}
	if err := f.get("/api/v1/health/sites?limit=1000", &list); err != nil {
		return nil, err
	}
	out := map[string]site{}
	for _, s := range list.Sites {
		out[s.Name] = s
	}
	return out, nil
}

func (f *fleet) site(name string) (site, error) {
	var s site
	return s, f.get("/api/v1/health/sites/"+name+"?tenant="+tenant, &s)
}

// muster runs the CLI on the demo's data directory.
func (f *fleet) muster(args ...string) string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin("muster"), append(args, "--data-dir", f.dir)...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// roles finds the children of the demo: name → pid.
func (f *fleet) roles() map[string]int {
	f.t.Helper()
	out := map[string]int{}
	for pid, parent := range parents() {
		if parent != f.cmd.Process.Pid {
			continue
		}
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		args := strings.Split(string(cmdline), "\x00")
		if len(args) < 2 {
			continue
		}
		name := args[1]
		switch {
		case name == "regional":
			name += "-" + args[3]
		case name == "demo":
			name = "fleet"
		case strings.HasSuffix(args[0], "muster-edge"):
			name = "edge"
		}
		out[name] = pid
	}
	return out
}

// parents reads /proc: pid → that of who started it.
func parents() map[int]int {
	out := map[int]int{}
	procs, _ := filepath.Glob("/proc/[0-9]*/status")
	ppid := regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`)
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		if m := ppid.FindSubmatch(b); m != nil {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			out[pid], _ = strconv.Atoi(string(m[1]))
		}
	}
	return out
}

// family is a process and all that descend from it: pid → command.
func family(pid int) map[int]string {
	out := map[int]string{pid: commandOf(pid)}
	all := parents()
	for grown := true; grown; {
		grown = false
		for child, parent := range all {
			if _, ours := out[parent]; ours && out[child] == "" {
				out[child] = commandOf(child)
				grown = out[child] != ""
			}
		}
	}
	return out
}

// commandOf is the command line of a process; empty: there is none.
func commandOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// openPorts are the TCP ports that somebody listens at, each with the inodes of the sockets.
func openPorts() map[int][]string {
	out := map[int][]string{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(file)
		for line := range strings.Lines(string(b)) {
			const listens = "0A"
			if x := strings.Fields(line); len(x) > 9 && x[3] == listens {
				_, port, _ := strings.Cut(x[1], ":")
				n, _ := strconv.ParseInt(port, 16, 32)
				out[int(n)] = append(out[int(n)], x[9])
			}
		}
	}
	return out
}

// listeners are the TCP ports that these processes listen at.
func listeners(pids ...int) map[int]bool {
	sockets := map[string]bool{}
	for _, pid := range pids {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			to, _ := os.Readlink(fd)
			sockets[to] = true
		}
	}
	out := map[int]bool{}
	for port, inodes := range openPorts() {
		if slices.ContainsFunc(inodes, func(inode string) bool { return sockets["socket:["+inode+"]"] }) {
			out[port] = true
		}
	}
	return out
}

// rss is a process' resident memory in MiB.
func rss(pid int) float64 { return memoryOf(pid, "VmRSS") }

// memoryOf is a figure of a process' memory in MiB, as /proc names it.
func memoryOf(pid int, name string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(b); m != nil {
		kb, _ := strconv.ParseFloat(string(m[1]), 64)
		return kb / 1024
	}
	return 0
}

type promResult struct {
	Data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
			Values [][2]any          `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// cortexQuery asks Cortex directly, past Muster's own API.
func (f *fleet) cortexQuery(query string) (promResult, error) {
	return f.cortexQueryOf(tenant, query)
}

func (f *fleet) cortexQueryOf(tenant, query string) (promResult, error) {
	var r promResult
	b, err := f.asOperator(cortex+"/prometheus/api/v1/query?query="+url.QueryEscape(query), http.Header{"X-Scope-Orgid": {tenant}})
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// missed says that a promised time was not kept. It does not fail the test: how busy the
// machine is decides that too, and the figures in docs/benchmarks.md say what a free one does.
func missed(t *testing.T, what string, took, promised time.Duration) {
	t.Helper()
	if took > promised {
		t.Logf("figure: MISSED: %s took %s, promised are %s", what, took.Round(100*time.Millisecond), promised)
	}
}
