package fleetapi

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"muster.dev/muster/internal/fleet"
)

// newQueue makes the queue of sites whose status is to be written. It gives them out tenant
// by tenant, and a tenant's in order of arrival: writes are few a second, so one tenant whose
// sites change all the time would keep everybody else's Online and Offline waiting.
func newQueue() workqueue.TypedRateLimitingInterface[fleet.SiteID] {
	failed := workqueue.NewTypedItemExponentialFailureRateLimiter[fleet.SiteID](100*time.Millisecond, time.Minute)
	inTurns := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[fleet.SiteID]{Queue: &tenantTurns{waiting: map[string]workqueue.Queue[fleet.SiteID]{}}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(failed, workqueue.TypedRateLimitingQueueConfig[fleet.SiteID]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[fleet.SiteID]{Queue: inTurns}),
	})
}

// tenantTurns implements workqueue.Queue, which holds a lock over it.
type tenantTurns struct {
	turn    []string // tenants of which sites wait; the first has its turn
	waiting map[string]workqueue.Queue[fleet.SiteID]
	n       int
}

// Touch implements workqueue.Queue.
func (*tenantTurns) Touch(fleet.SiteID) {}

// Len implements workqueue.Queue.
func (q *tenantTurns) Len() int { return q.n }

// Push implements workqueue.Queue.
func (q *tenantTurns) Push(id fleet.SiteID) {
	of := q.waiting[id.Tenant]
	if of == nil {
		of = workqueue.DefaultQueue[fleet.SiteID]()
		q.waiting[id.Tenant] = of
		q.turn = append(q.turn, id.Tenant)
	}
	of.Push(id)
	q.n++
}

// Pop implements workqueue.Queue.
func (q *tenantTurns) Pop() fleet.SiteID {
	tenant := q.turn[0]
	q.turn = q.turn[1:]
	of := q.waiting[tenant]
	id := of.Pop()
	if of.Len() > 0 {
		q.turn = append(q.turn, tenant)
	} else {
		delete(q.waiting, tenant)
	}
	q.n--
	return id
}
