package powercut

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tellOfSyncs has the kernel stop this process for its tracer at each fsync and
// fdatasync, and at no other call.
func tellOfSyncs() error {
	const load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	const jump = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	const ret = unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the call
		{Code: jump, K: unix.SYS_FSYNC, Jt: 2},
		{Code: jump, K: unix.SYS_FDATASYNC, Jt: 1},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		{Code: ret, K: unix.SECCOMP_RET_TRACE},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("filter the calls: %w", errno)
	}
	return nil
}

// cut ends the process as a power cut would.
func cut() {
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

type tracer struct {
	root  string
	nodes map[id]*node
	// begun are the syncs that have not returned, by thread.
	begun map[int]begun
	syncs int
	seen  map[int]bool // threads
}

type begun struct {
	id   id
	node *node
}

// trace runs the test in a process of its own and leaves in dir what survived. It
// returns what the process said.
func trace(test, dir string) (said []byte, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	tr := &tracer{root: dir, nodes: map[id]*node{}, begun: map[int]begun{}, seen: map[int]bool{}}
	defer func() {
		for _, n := range tr.nodes {
			_ = n.open.Close()
		}
	}()
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		of, n, err := capture(path)
		if err == nil {
			tr.keep(of, n)
		}
		return err
	}); err != nil {
		return nil, err
	}
	out, err := os.CreateTemp("", "powercut-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	tmp, err := os.MkdirTemp("", "powercut-*") // of the process, which won't clean up
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	var names []string
	for _, part := range strings.Split(test, "/") {
		names = append(names, "^"+regexp.QuoteMeta(part)+"$")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	pid, err := syscall.ForkExec(exe, []string{exe, "-test.run=" + strings.Join(names, "/"), "-test.count=1", "-test.v"}, &syscall.ProcAttr{
		Env:   append(os.Environ(), env+"="+dir, "TMPDIR="+tmp),
		Files: []uintptr{0, out.Fd(), out.Fd()},
		Sys:   &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", exe, err)
	}
	ended, err := tr.follow(pid)
	said, _ = os.ReadFile(out.Name())
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		return said, err
	}
	if !ended.Signaled() || ended.Signal() != unix.SIGKILL {
		return said, errors.New("the process whose power was to be cut ended by itself")
	}
	return said, tr.leave()
}

// follow lets the process run, and notes what it syncs, until its end.
func (tr *tracer) follow(leader int) (end unix.WaitStatus, err error) {
	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_EXITKILL
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return ws, fmt.Errorf("wait: %w", err)
		}
		if ws.Exited() || ws.Signaled() {
			if tid == leader {
				return ws, nil
			}
			continue
		}
		sig, first, next := ws.StopSignal(), !tr.seen[tid], unix.PtraceCont
		tr.seen[tid] = true
		switch {
		case first && tid == leader: // exec
			if err := unix.PtraceSetOptions(tid, options); err != nil {
				return ws, fmt.Errorf("trace: %w", err)
			}
			sig = 0
		case first && sig == unix.SIGSTOP: // a new thread
			sig = 0
		case sig == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
			err, next, sig = tr.begin(leader, tid), unix.PtraceSyscall, 0
		case sig == unix.SIGTRAP|0x80:
			err, sig = tr.end(tid), 0
		case sig == unix.SIGTRAP:
			sig = 0
		}
		if err != nil {
			return ws, err
		}
		// Killed meanwhile: its end is reported next.
		if err := next(tid, int(sig)); err != nil && !errors.Is(err, unix.ESRCH) {
			return ws, fmt.Errorf("trace: %w", err)
		}
	}
}

// callInfo is what PTRACE_GET_SYSCALL_INFO gives: what kind of stop it is, and then
// number and arguments, or the result.
func callInfo(tid int) (info [88]byte, err error) {
	const getSyscallInfo = 0x420e
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// begin takes a picture of what a thread is about to sync.
func (tr *tracer) begin(leader, tid int) error {
	info, err := callInfo(tid)
	if errors.Is(err, unix.ESRCH) {
		return nil
	} else if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	fd := binary.NativeEndian.Uint64(info[32:])
	path := fmt.Sprintf("/proc/%d/fd/%d", leader, fd)
	name, err := os.Readlink(path)
	if err != nil {
		return nil // not a file of this process: the call fails
	}
	if name != tr.root && !strings.HasPrefix(name, tr.root+"/") {
		return nil
	}
	of, n, err := capture(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the process was killed meanwhile: the call never returns
	} else if err != nil {
		return fmt.Errorf("look at what is synced: %s: %w", name, err)
	}
	tr.syncs++
	n.begun = tr.syncs
	tr.begun[tid] = begun{of, n}
	return nil
}

// end keeps the picture, if the sync succeeded.
func (tr *tracer) end(tid int) error {
	b, ok := tr.begun[tid]
	if !ok {
		return nil
	}
	delete(tr.begun, tid)
	info, err := callInfo(tid)
	if errors.Is(err, unix.ESRCH) {
		return b.node.open.Close()
	} else if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if int64(binary.NativeEndian.Uint64(info[24:])) != 0 {
		return b.node.open.Close()
	}
	if old := tr.nodes[b.id]; old != nil && old.begun > b.node.begun {
		return b.node.open.Close() // another began later and ended first
	}
	tr.keep(b.id, b.node)
	return nil
}

func (tr *tracer) keep(of id, n *node) {
	if old := tr.nodes[of]; old != nil {
		_ = n.open.Close()
		n.open = old.open
	}
	tr.nodes[of] = n
}

// capture takes a picture of a file or a directory.
func capture(path string) (of id, n *node, err error) {
	f, err := os.Open(path)
	if err != nil {
		return of, nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return of, nil, err
	}
	n = &node{perm: info.Mode().Perm(), dir: info.IsDir(), open: f}
	if !n.dir {
		n.data, err = io.ReadAll(f) // and not by its path, which ends with the process
		return idOf(info), n, err
	}
	n.names = map[string]entry{}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return of, nil, err
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && (i.IsDir() || i.Mode().IsRegular()) {
			n.names[e.Name()] = entry{idOf(i), i.IsDir()}
		}
	}
	return idOf(info), n, nil
}

func idOf(info fs.FileInfo) id {
	st := info.Sys().(*syscall.Stat_t)
	return id{st.Dev, st.Ino}
}

// leave puts what survived in the place of what is there.
func (tr *tracer) leave() error {
	info, err := os.Stat(tr.root)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(tr.root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(tr.root, e.Name())); err != nil {
			return err
		}
	}
	return build(tr.root, tr.nodes[idOf(info)], tr.nodes)
}
