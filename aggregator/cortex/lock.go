package cortex

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockDir takes an exclusive lock that dies with the process, however it dies.
// Cortex opens its databases without one, and two writers would ruin them.
func lockDir(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("data directory: %s is held by another process; stop it or choose another --data-dir", path)
		}
		return nil, fmt.Errorf("data directory: lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
