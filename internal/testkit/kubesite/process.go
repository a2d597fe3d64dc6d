package kubesite

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Process is a cluster outside of a test, which begins with Run.
type Process struct {
	Kubeconfig string // file of the administrator's kubeconfig

	control string // address that takes what a Cluster's methods ask for
	stdin   io.Closer
	cmd     *exec.Cmd
	exited  chan struct{}
}

// Run starts the cluster of a directory, which must be given, and returns when its nodes are
// ready. It ends with Kill, or with this process.
func Run(o Options) (*Process, error) {
	binary, err := build()
	if err != nil {
		return nil, err
	}
	return run(binary, o)
}

func run(binary string, o Options) (*Process, error) {
	nodes, prefix := max(o.Nodes, 1), o.Prefix
	if prefix == "" {
		prefix = "node-"
	}
	args := []string{"--dir", o.Dir, "--nodes", strconv.Itoa(nodes), "--prefix", prefix}
	for k, v := range o.Labels {
		args = append(args, "--label", k+"="+v)
	}
	logFile := filepath.Join(o.Dir, "log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &Process{cmd: exec.Command(binary, args...), exited: make(chan struct{})}
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends when it is told to, not by a Ctrl-C that is for whoever started it
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	began := time.Now()
	var ready struct{ Kubeconfig, Control string }
	err = json.NewDecoder(stdout).Decode(&ready)
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	if err != nil {
		p.Kill()
		said, _ := os.ReadFile(logFile)
		return nil, fmt.Errorf("the site's cluster ended after %s:\n%s", time.Since(began), said[max(0, len(said)-4000):])
	}
	p.Kubeconfig, p.control = ready.Kubeconfig, ready.Control
	return p, nil
}

// Kill ends the whole cluster as a power cut does. It may be called again.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	_ = p.stdin.Close()
}

// Exited is closed once the cluster has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }
