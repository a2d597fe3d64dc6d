package self

import "syscall"

// endsWithParent has the agent killed when the watchdog is: two agents must never run.
func endsWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
