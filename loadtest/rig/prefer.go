package rig

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// sitesNice is the priority of this process, as of nice(1): each site of a real fleet has a
// processor of its own, so the simulated ones must not wait for those that Muster uses up.
// What the sites wait for would be counted as Muster's, and they would give up and come anew.
const sitesNice = -10

// preferSites puts all threads of this process before Muster's; those that come later are
// as the thread that makes them. It needs root or CAP_SYS_NICE.
func preferSites() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, tid, sitesNice); err != nil && !errors.Is(err, syscall.ESRCH) { // which has ended meanwhile
			return fmt.Errorf("priority %d: %w", sitesNice, err)
		}
	}
	return nil
}
