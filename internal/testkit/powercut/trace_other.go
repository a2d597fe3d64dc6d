//go:build !linux

package powercut

import "errors"

func tellOfSyncs() error { return errors.ErrUnsupported }

func cut() {}

func trace(string, string) ([]byte, error) {
	return nil, errors.New("wants Linux, for its ptrace")
}
