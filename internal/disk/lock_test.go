package disk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/disk"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("MUSTER_TEST_LOCK"); path != "" { // the other process
		if _, err := disk.LockFile(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin) // until its parent kills it
	}
	os.Exit(m.Run())
}

// A second process is told who has the lock, and one that was killed has it no more.
func TestLockOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), "MUSTER_TEST_LOCK="+path)
	in, err := child.StdinPipe() // never closed: the child lives until it is killed
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	_, err = disk.LockFile(path)
	held := (*disk.HeldError)(nil)
	want := fmt.Sprintf("another process (pid %d) uses %s; stop it, or choose another directory", child.Process.Pid, dir)
	if !errors.As(err, &held) || err.Error() != want {
		t.Fatalf("%v\nwant %s", err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := disk.WaitLockFile(ctx, path); !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &held) {
		t.Errorf("waited until %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	l, err := disk.WaitLockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.LockFile(path); err == nil || !strings.HasPrefix(err.Error(), "this process itself uses ") {
		t.Errorf("twice in a process: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = disk.LockFile(path); err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// A holder that could not say who it is, on a full disk or of an earlier version, holds
// all the same.
func TestLockWithoutAName(t *testing.T) {
	for _, content := range []string{"", "garbage", "-3\n", strings.Repeat("9", 99)} {
		path := filepath.Join(t.TempDir(), "lock")
		l, err := disk.LockFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := disk.LockFile(path); err == nil || !strings.HasPrefix(err.Error(), "another process uses ") {
			t.Errorf("%q: %v", content, err)
		}
		l.Close()
	}
	if _, err := disk.LockFile(filepath.Join(t.TempDir(), "missing", "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
