// Package fakehost is a Linux host as far as package control/agent/hostconfig sees it: its
// files in a directory of a test, and the programs that load them. Files are real ones; of
// the programs it does what tests can see (a value in /proc/sys), notes that they ran, and
// fails when it is told to.
package fakehost

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Host is one. Safe for concurrent use.
type Host struct {
	Root string
	t    testing.TB

	mu    sync.Mutex
	ran   []string
	fail  map[string]string
	clamp map[string]int
}

// New returns one with an sshd, systemd-timesyncd, an account ops, and the values of the
// kernel that tests set.
func New(t testing.TB) *Host {
	h := &Host{Root: t.TempDir(), t: t, fail: map[string]string{}, clamp: map[string]int{}}
	for path, body := range map[string]string{
		"etc/hosts": "127.0.0.1 localhost\n", "etc/passwd": "root:x:0:0::/root:/bin/sh\nops:x:1000:1000::/home/ops:/bin/sh\n", "etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\n", "etc/systemd/timesyncd.conf": "[Time]\n",
		"proc/sys/vm/swappiness": "60\n", "proc/sys/net/core/somaxconn": "128\n", "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
	} {
		h.Write(path, body)
	}
	return h
}

// Write replaces a file, as somebody on the host would.
func (h *Host) Write(path, body string) {
	h.t.Helper()
	name := filepath.Join(h.Root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(body), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// Read returns a file; "" if there is none.
func (h *Host) Read(path string) string {
	b, err := os.ReadFile(filepath.Join(h.Root, path))
	if err != nil && !os.IsNotExist(err) {
		h.t.Error(err)
	}
	return string(b)
}

// Files is all that the host has below etc, proc and sys, by path.
func (h *Host) Files() map[string]string {
	out := map[string]string{}
	for _, dir := range []string{"etc", "proc", "sys"} {
		_ = filepath.WalkDir(filepath.Join(h.Root, dir), func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(h.Root, path)
				out[rel] = strings.Join(strings.Fields(h.Read(rel)), " ")
			}
			return nil
		})
	}
	return out
}

// Fail has a program fail with these words; "": it works again.
func (h *Host) Fail(program, words string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail[program] = words
}

// Clamp has the kernel take at most this value.
func (h *Host) Clamp(path string, value int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clamp[path] = value
}

// Ran are the programs that ran since it was asked last, by name.
func (h *Host) Ran() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.ran
	h.ran = nil
	return out
}

// Run is for hostconfig.Options.Run.
func (h *Host) Run(_ context.Context, argv ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran = append(h.ran, argv[0])
	if words := h.fail[argv[0]]; words != "" {
		return fmt.Errorf("%s: %s", argv[0], words)
	}
	switch argv[0] {
	case "sysctl":
		file, ok := strings.CutPrefix(argv[1], "--load=")
		if !ok {
			return fmt.Errorf("sysctl: unknown option %s", argv[1])
		}
		return h.load(file, func(line string) (string, string) {
			key, v, _ := strings.Cut(line, "=")
			return "proc/sys/" + strings.ReplaceAll(strings.TrimSpace(key), ".", "/"), strings.TrimSpace(v)
		})
	case "systemd-tmpfiles":
		return h.load(argv[2], func(line string) (string, string) {
			f := strings.Fields(line)
			return strings.TrimPrefix(f[1], "/"), f[len(f)-1]
		})
	case "sshd", "systemctl", "chronyc":
		return nil
	}
	return fmt.Errorf("%s: command not found", argv[0])
}

func (h *Host) load(file string, parse func(string) (path, value string)) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, line := range slices.DeleteFunc(strings.Split(string(b), "\n"), func(l string) bool { return l == "" || l[0] == '#' }) {
		path, v := parse(line)
		if _, err := os.Stat(filepath.Join(h.Root, path)); err != nil {
			return err
		}
		if n, err := strconv.Atoi(v); err == nil && h.clamp[path] > 0 {
			v = strconv.Itoa(min(n, h.clamp[path]))
		}
		if err := os.WriteFile(filepath.Join(h.Root, path), []byte(v+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
