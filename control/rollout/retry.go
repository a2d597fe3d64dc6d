package rollout

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
)

// maxRetryOf is for how many rollouts a site remembers that it was asked to try again.
const maxRetryOf = 8

// retrySoftware has sites try again that people named: a version of software that failed is
// left alone by a site until its count of tries is another, which stands on the Site. It
// can be done again: what the Site was raised for stands beside the count.
func (j *job) retrySoftware(ctx context.Context) error {
	if !slices.ContainsFunc(j.objects, func(o *object) bool { return o.kind.Kind == "SoftwarePolicy" }) {
		return nil
	}
	for name, count := range j.r.Spec.Control.Retry {
		var s v1alpha1.Site
		if err := j.c.o.Cache.Get(ctx, client.ObjectKey{Namespace: fleet.SystemNamespace(j.tenant), Name: name}, &s); client.IgnoreNotFound(err) != nil {
			return err
		} else if err != nil {
			continue
		}
		before := s.DeepCopy()
		if !raiseRetry(&s, string(j.r.UID), count) {
			continue
		}
		err := j.c.o.Client.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("have site %s try again: %w", name, err)
		}
	}
	return nil
}

// raiseRetry counts one more try unless it was counted for this rollout and this count.
func raiseRetry(s *v1alpha1.Site, rollout string, count int32) bool {
	of := strings.Fields(s.Annotations[v1alpha1.AnnotationSoftwareRetryOf])
	at := slices.IndexFunc(of, func(x string) bool { return strings.HasPrefix(x, rollout+"/") })
	if at >= 0 {
		if had, _ := strconv.Atoi(strings.TrimPrefix(of[at], rollout+"/")); had >= int(count) {
			return false
		}
		of = slices.Delete(of, at, at+1)
	}
	if count < 1 {
		return false
	}
	of = append(of, fmt.Sprintf("%s/%d", rollout, count))
	n, _ := strconv.ParseInt(s.Annotations[v1alpha1.AnnotationSoftwareRetry], 10, 31)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[v1alpha1.AnnotationSoftwareRetry] = strconv.FormatInt(max(n, 0)+1, 10)
	s.Annotations[v1alpha1.AnnotationSoftwareRetryOf] = strings.Join(of[max(0, len(of)-maxRetryOf):], " ")
	return true
}
