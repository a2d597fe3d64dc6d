package controllers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// restShare is how many times as long as a pass took the tenant then waits for its next one,
	// restMost the most of it.
	restShare = 4
	restMost  = time.Second
)

// doneAfterRest keeps a tenant from more than a fifth of the loop's time, be it as large as it may
// and the machine as busy: until it is done the queue gives nobody its name again, so that what
// changes meanwhile is in one pass, and other tenants come first.
func doneAfterRest(queue workqueue.TypedInterface[string], tenant string, pass time.Duration) {
	time.AfterFunc(min(restShare*pass, restMost), func() { queue.Done(tenant) })
}
