//go:build !linux

package disk

import "errors"

func space(string) (free, total int64, err error) { return 0, 0, errors.ErrUnsupported }
