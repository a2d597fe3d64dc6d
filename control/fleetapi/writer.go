package fleetapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// Run writes Sites, subscribes to desired states and keeps time until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.opts.Desired.Subscribe(s.desiredChanged)()
	defer s.opts.Desired.SubscribeRegional(s.regionalChanged)()
	s.regionalChanged() // what changed before
	limit := rate.NewLimiter(rate.Limit(s.opts.WritesPerSecond), max(1, int(s.opts.WritesPerSecond/2)))
	var wg sync.WaitGroup
	for range s.opts.Workers {
		wg.Go(func() {
			for s.writeNext(ctx, limit) {
			}
		})
	}
	wg.Go(func() { s.keepRevocations(ctx) })
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.sweep()
			case <-ctx.Done():
				s.queue.ShutDown()
				return
			}
		}
	})
	wg.Wait()
	return ctx.Err()
}

// writeNext writes the status of the next site of the queue; false when the queue is shut.
func (s *Server) writeNext(ctx context.Context, limit *rate.Limiter) bool {
	id, shut := s.queue.Get()
	if shut {
		return false
	}
	defer s.queue.Done(id)
	wait, err := s.write(ctx, id, limit)
	switch {
	case err != nil && ctx.Err() == nil:
		s.metrics.writes.WithLabelValues("failed").Inc()
		if s.queue.NumRequeues(id) >= 5 { // conflicts are everyday; what stays is not
			s.opts.Logger.Warn("can't write the status of a site; trying on", "site", id, "err", err)
		}
		s.queue.AddRateLimited(id)
	case wait > 0:
		s.queue.AddAfter(id, wait)
	default:
		s.queue.Forget(id)
	}
	return true
}

// write brings one Site up to date. wait > 0: the site has changed too often, try
// again later.
func (s *Server) write(ctx context.Context, id fleet.SiteID, limit *rate.Limiter) (wait time.Duration, err error) {
	s.mu.Lock()
	st := s.sites[id]
	if st == nil || st.obj == nil {
		s.mu.Unlock()
		return 0, nil
	}
	now := s.opts.Now()
	obj := st.obj
	labels := st.labelPatchLocked()
	body := s.statusPatchLocked(st, now)
	if labels == nil && body == nil {
		s.mu.Unlock()
		return 0, nil
	}
	if r := st.writes.ReserveN(now, 1); r.DelayFrom(now) > 0 {
		wait = r.DelayFrom(now)
		r.CancelAt(now)
		s.mu.Unlock()
		return wait, nil
	}
	s.mu.Unlock()

	if labels != nil {
		if err := s.patch(ctx, id, obj, map[string]any{"metadata": map[string]any{"labels": labels}}, limit, s.opts.Client.Patch); err != nil {
			return 0, fmt.Errorf("write labels of site %s: %w", id, err)
		}
	}
	if body != nil {
		meta := map[string]any{}
		_, list := body["conditions"]
		_, reset := body["reset"]
		if (list || reset) && labels == nil {
			// A list is replaced as a whole, and a reset is decided by what was read: only over
			// what it was made from.
			meta["resourceVersion"] = obj.ResourceVersion
		} else if list || reset {
			return time.Millisecond, nil // the labels made a new version; these next
		}
		err := s.patch(ctx, id, obj, map[string]any{"metadata": meta, "status": body}, limit,
			func(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
				return s.opts.Client.Status().Patch(ctx, o, p)
			})
		if err != nil {
			return 0, fmt.Errorf("write status of site %s: %w", id, err)
		}
	}
	return 0, nil
}

func (s *Server) patch(ctx context.Context, id fleet.SiteID, obj *v1alpha1.Site, body map[string]any, limit *rate.Limiter,
	do func(context.Context, client.Object, client.Patch, ...client.PatchOption) error) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if err := limit.Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	got := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Name}}
	err = do(ctx, got, client.RawPatch(types.MergePatchType, data))
	switch {
	case apierrors.IsNotFound(err):
		return nil // the watch will tell
	case apierrors.IsConflict(err):
		fresh := &v1alpha1.Site{}
		if gerr := s.opts.Client.Get(ctx, client.ObjectKeyFromObject(obj), fresh); gerr == nil {
			s.SetSite(id, fresh)
		}
		return err
	case err != nil:
		return err
	}
	s.metrics.writes.WithLabelValues("written").Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.sites[id]; st != nil && st.obj != nil && st.obj.UID == got.UID && !older(got.ResourceVersion, st.obj.ResourceVersion) {
		s.noticeLocked(id, st.obj, got)
		st.obj = got
	}
	return nil
}

// labelPatchLocked is what of the discovered labels changed; nil: nothing.
func (st *siteState) labelPatchLocked() map[string]any {
	if st.labels == nil {
		return nil
	}
	now := systemLabels(st.obj.Labels)
	if maps.Equal(now, st.labels) {
		return nil
	}
	out := map[string]any{}
	for k := range now {
		out[k] = nil // gone, unless it is set again below
	}
	for k, v := range st.labels {
		out[k] = v
	}
	return out
}

// statusPatchLocked is what of the status changed; nil: nothing worth writing.
func (s *Server) statusPatchLocked(st *siteState, now time.Time) map[string]any {
	old := &st.obj.Status
	out := map[string]any{}
	if phase := st.phaseLocked(); phase != old.Phase {
		out["phase"] = phase
	}
	// To the second, as the API server keeps it.
	if t := st.certified.Truncate(time.Second); !t.IsZero() && (old.CertificateNotAfter == nil || old.CertificateNotAfter.Time.Before(t)) {
		out["certificateNotAfter"] = t.UTC().Format(time.RFC3339)
	}
	if st.regional != "" && st.regional != old.Regional {
		out["regional"] = st.regional
	}
	versions := map[string]string{}
	if st.agent != "" {
		versions["agent"] = st.agent
	}
	if r := st.report; r != nil {
		maps.Copy(versions, r.versions)
		if r.policyHash != old.PolicyHash {
			out["policyHash"] = r.policyHash
		}
		if !equality.Semantic.DeepEqual(r.software, old.Software) {
			out["software"] = r.software // nil removes it
		}
	}
	reset := s.resetLocked(st, now)
	if c := st.conditionsLocked(reset, now); !equality.Semantic.DeepEqual(c, old.Conditions) {
		out["conditions"] = c
	}
	if r := resetPatch(old.Reset, reset); r != nil {
		out["reset"] = r
	}
	if v := versionPatch(old.Versions, versions, st.report != nil); v != nil {
		out["versions"] = v
	}
	if len(out) == 0 && !st.lastSeenDueLocked(s.opts.LastSeenEvery) {
		return nil
	}
	// The revision is another one with each change of a workload, on thousands of sites at
	// once, and nobody waits for it here: it goes with what is written anyway.
	if r := st.report; r != nil && r.appliedRevision != old.AppliedRevision {
		out["appliedRevision"] = r.appliedRevision
	}
	if !st.lastSeen.IsZero() {
		out["lastSeen"] = st.lastSeen.UTC().Format(time.RFC3339)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// versionPatch sets what changed; a full report also removes what is gone.
func versionPatch(old, now map[string]string, full bool) map[string]any {
	out := map[string]any{}
	for k, v := range now {
		if old[k] != v {
			out[k] = v
		}
	}
	if full {
		for k := range old {
			if _, still := now[k]; !still {
				out[k] = nil
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// conditionsLocked is the Site's list as it should be: Muster's own as they are,
// the site's as it reported them, the regional's as it sees the site, each with the
// time of its last change of status. What nobody has told of since this process
// runs stays as it is. reset is how far its factory reset is; nil: there never was one.
func (st *siteState) conditionsLocked(reset *v1alpha1.SiteResetStatus, now time.Time) []metav1.Condition {
	old := map[string]metav1.Condition{}
	out := []metav1.Condition{}
	for _, c := range st.obj.Status.Conditions {
		old[c.Type] = c
		told := st.report != nil
		switch {
		case regionalTypes[c.Type]:
			told = st.regionalView != nil
		case c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionResetOverdue:
			told = true
		case c.Type == ConditionClusterAccepted:
			told = st.cluster != nil
		case reserved[c.Type] && c.Type != ConditionReportAccepted:
			told = false
		}
		if !told {
			out = append(out, c)
		}
	}
	set := func(c metav1.Condition) {
		c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
		if was, ok := old[c.Type]; ok && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		out = append(out, c)
	}
	set(st.readyLocked())
	if st.regionalView != nil {
		for _, c := range *st.regionalView {
			set(c)
		}
	}
	if st.report != nil {
		st.reportedLocked(old, set)
	}
	_, was := old[v1alpha1.ConditionResetOverdue]
	if c, is := resetOverdue(reset, was, now); is {
		set(c)
	}
	if _, was := old[ConditionClusterAccepted]; st.cluster != nil && *st.cluster != "" {
		set(metav1.Condition{Type: ConditionClusterAccepted, Status: metav1.ConditionFalse, Reason: "Dropped", Message: *st.cluster})
	} else if st.cluster != nil && was {
		set(metav1.Condition{Type: ConditionClusterAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"})
	}
	slices.SortFunc(out, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// readyLocked is the phase as a condition, which kubectl wait knows.
func (st *siteState) readyLocked() metav1.Condition {
	phase := st.phaseLocked()
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(phase), ObservedGeneration: st.obj.Generation}
	switch phase {
	case fleet.PhaseOnline:
		c.Status, c.Message = metav1.ConditionTrue, "connected"
	case fleet.PhaseOffline:
		c.Message = "not connected; status.lastSeen says since when"
	case fleet.PhaseApproved:
		c.Message = "approved; it has not connected yet"
	case fleet.PhasePending:
		c.Message = "waits for approval: set spec.approved"
	case fleet.PhaseDecommissioned:
		c.Message = "refused for good"
	}
	return c
}

// reportedLocked sets the conditions that the site reported, and what of its report
// could not be taken.
func (st *siteState) reportedLocked(old map[string]metav1.Condition, set func(metav1.Condition)) {
	for _, c := range st.report.conditions {
		set(c)
	}
	problems := st.report.problems
	if st.report.flood {
		problems = append(slices.Clip(problems), fmt.Sprintf("reports come faster than one in %s; some are left out", reportEvery))
	}
	if len(problems) > 0 {
		set(metav1.Condition{Type: ConditionReportAccepted, Status: metav1.ConditionFalse, Reason: "Clamped", Message: strings.Join(problems, "; ")})
	} else if _, was := old[ConditionReportAccepted]; was {
		set(metav1.Condition{Type: ConditionReportAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"})
	}
}
