//go:build unix && !solaris && !illumos && !aix

package spool

import (
	"errors"
	"os"
	"syscall"
)

// lockDir takes the directory for this process; the lock ends with the process.
func lockDir(dir string) (func() error, error) {
	f, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another process uses this directory; stop it, or choose another directory")
		}
		return nil, err
	}
	return f.Close, nil
}
