package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Lock is a file that this process alone holds. The operating system gives it back
// when the process ends, however it ends.
type Lock struct{ f *os.File }

// HeldError says that another process, or another part of this one, holds a lock.
type HeldError struct {
	Path string // of the lock's file
	PID  int    // of the process; 0: it did not say
}

// Error names the directory, who uses it if that is known, and what to do.
func (e *HeldError) Error() string {
	who := "another process"
	switch e.PID {
	case 0:
	case os.Getpid():
		who = "this process itself"
	default:
		who = fmt.Sprintf("another process (pid %d)", e.PID)
	}
	return fmt.Sprintf("%s uses %s; stop it, or choose another directory", who, filepath.Dir(e.Path))
}

// LockFile takes the lock on the file, which it makes if need be. It doesn't wait: the
// error is a *HeldError if somebody has it. The file's content is the holder's process id,
// as far as there is room on the disk for it. Where the operating system has no such
// locks, nobody is kept out.
func LockFile(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := lock(f)
	if err != nil || held {
		if err == nil {
			err = &HeldError{Path: path, PID: readPID(f)}
		} else {
			err = fmt.Errorf("lock %s: %w", path, err)
		}
		_ = f.Close()
		return nil, err
	}
	// Whom the lock keeps out is told who has it; it holds without that too.
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return &Lock{f}, nil
}

// WaitLockFile is LockFile that waits until nobody else has the lock, or ctx ends.
func WaitLockFile(ctx context.Context, path string) (*Lock, error) {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		l, err := LockFile(path)
		if held := (*HeldError)(nil); !errors.As(err, &held) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// Close gives the lock back. The file stays, empty: who removed it could take it from
// under somebody who has just opened it.
func (l *Lock) Close() error {
	_ = l.f.Truncate(0)
	return l.f.Close()
}

func readPID(f *os.File) int {
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
