package kube_test

import (
	"fmt"
	"strings"
	"testing"

	"muster.dev/muster/control/agent/kube"
	"muster.dev/muster/internal/mirror"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/workload"
)

// TestMoreThanIsTold: what has no room among what a site tells is said in one condition, and
// comes in by itself when there is room again, though nothing of it changes then.
func TestMoreThanIsTold(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSite(t)
	s.stop()
	s.limits = mirror.Limits{Objects: 1000, Bytes: 200 << 10, Object: 128 << 10}
	s.start()
	large := func(name string) string {
		return strings.Replace(deployment(name, "nginx:1", 1), `"metadata":{"labels":{`, fmt.Sprintf(`"metadata":{"annotations":{"large":%q},"labels":{`, strings.Repeat("x", 100<<10)), 1)
	}
	one, two := "Deployment.apps/"+ns+"/one", "Deployment.apps/"+ns+"/two"
	// told are the Deployments of which a running pod is told of.
	told := func() string {
		s.centre.real.Resync()
		var of []string
		for _, part := range s.centre.real.Next(true) {
			for _, o := range part.Mirrored {
				if app, _, _ := strings.Cut(o.Name, "-"); o.Kind == "Pod" {
					of = append(of, app)
				}
			}
		}
		return strings.Join(of, " ")
	}
	s.put(namespace(ns), large("one"))
	s.is(one, workload.Ready, "")
	testkit.EventuallyTrue(t, "its pod is told of", func() bool { return told() == "one" })
	s.put(large("two"))
	s.is(two, workload.Ready, "")
	testkit.Eventually(t, "the site says what is left out", func() error {
		if got := s.condition(kube.Mirrored); got != "False TooMany 1 objects or states of workloads are left out: a site tells of 1000 in 200Ki, each of 128Ki" || told() != "one" {
			return fmt.Errorf("%s; %s", got, told())
		}
		return nil
	})
	s.set(map[string]string{one: ""})
	testkit.Eventually(t, "the other one comes in, and all is well", func() error {
		if got := s.condition(kube.Mirrored); !strings.HasPrefix(got, "True") || told() != "two" {
			return fmt.Errorf("%s; %s", got, told())
		}
		return nil
	})
}
