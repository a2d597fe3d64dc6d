//go:build unix && !linux

package elasticsearch

import "syscall"

// dieWithParent: the launcher ends when its standard input does; that is enough here.
func dieWithParent(*syscall.SysProcAttr) {}
