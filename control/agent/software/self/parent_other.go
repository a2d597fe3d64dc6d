//go:build !linux

package self

import "syscall"

// endsWithParent does nothing here: who stops the watchdog hard stops the agent, too.
func endsWithParent() *syscall.SysProcAttr { return nil }
