package images

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// GuardRules are what the guard may in the agent's namespace, and HostRules in that of the
// DaemonSet.
func GuardRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{RecordName}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{AgentName, GuardName}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}
}

// HostRules see GuardRules.
func HostRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{HostName}, Verbs: []string{"get", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}
}

// GuardOptions of a Guard.
type GuardOptions struct {
	Client    kubernetes.Interface
	Namespace string
	// HostNamespace is the DaemonSet's; empty: there is none.
	HostNamespace string
	// Within is how long the DaemonSet's first new pod may take to be ready, and then the
	// new agent to mark itself good. Longer than the agent itself waits for that: 0: 15 minutes.
	Within time.Duration
	Every  time.Duration // 0: 5 seconds
	Log    *slog.Logger
}

// Guard exchanges images and puts them back. Not safe for concurrent use; a second one, of a
// node that was thought lost, does no harm.
type Guard struct {
	o       GuardOptions
	records records
	last    time.Time     // when it last saw the record
	waited  time.Duration // since, and not noted yet
}

// NewGuard returns a guard.
func NewGuard(o GuardOptions) *Guard {
	o.Within = cmp.Or(o.Within, 15*time.Minute)
	o.Every = cmp.Or(o.Every, 5*time.Second)
	return &Guard{o: o, records: records{o.Client, o.Namespace}}
}

// Run does what is to be done until ctx ends, which is when its pod goes.
func (g *Guard) Run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		cctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := g.Step(cctx)
		cancel()
		if text := fmt.Sprint(err); ctx.Err() == nil && text != said {
			if said = text; err != nil {
				g.o.Log.Warn("it can't go on; trying again", "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(g.o.Every):
		}
	}
}

// Step does what is to be done now. It may be broken off anywhere.
func (g *Guard) Step(ctx context.Context) error {
	r, err := g.records.load(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if !g.last.IsZero() {
		g.waited += min(now.Sub(g.last), 3*g.o.Every) // not what went by while it could not see
	}
	g.last = now
	switch t := r.Trial; {
	case t == nil:
		g.waited = 0
		return g.sleep(ctx, r)
	case t.Back:
		return g.putBack(ctx, r)
	case t.Images == nil:
		return g.note(ctx)
	default:
		return g.try(ctx, r)
	}
}

// edit changes the trial, if it is still the one that was looked at and goes on.
func (g *Guard) edit(ctx context.Context, was *trial, change func(*record)) error {
	_, err := g.records.edit(ctx, func(r *record) error {
		if r.Trial != nil && r.Trial.Version == was.Version && !r.Trial.Back {
			change(r)
		}
		return nil
	})
	return err
}

// end has the old images put back.
func (g *Guard) end(ctx context.Context, was *trial, why string) error {
	g.o.Log.Warn("the images from before are put back", "version", was.Version, "why", why)
	return g.edit(ctx, was, func(r *record) { r.Trial.Back, r.Why = true, why })
}

// note writes down what runs, before any of it is changed.
func (g *Guard) note(ctx context.Context) error {
	all, err := g.workloads(ctx)
	if err != nil {
		return err
	}
	_, err = g.records.edit(ctx, func(r *record) error {
		t := r.Trial
		if t == nil || t.Back || t.Images != nil {
			return nil
		}
		if r.Other == nil || r.Other.Version != t.Version || !r.Other.whole() {
			r.Trial = nil
			return nil
		}
		images := map[string]change{}
		for _, w := range all {
			next, err := imageOf(r.Other, w)
			if err != nil {
				r.Trial, r.Why = nil, err.Error()
				r.Ended++
				return nil
			}
			images[w.name()] = change{w.image, next}
			if w.daemonSet {
				t.Away = w.away
			} else {
				t.Mark = w.mark
			}
		}
		t.Images = images
		return nil
	})
	g.waited = 0
	return err
}

// imageOf is what a workload gets of a version: never another repository than it has.
func imageOf(r *release, w workload) (string, error) {
	repository, _, _ := Split(w.image)
	if r.File != "" {
		ref, err := ParseReference([]byte(r.File))
		return ref.In(repository), err
	}
	image := r.Images[w.name()]
	if of, _, _ := Split(image); image == "" || of != repository {
		return "", fmt.Errorf("%s had the image %q with %s, which is not of the repository %s: name a version that was released", w.name(), image, r.Version, repository)
	}
	return image, nil
}

// noteEvery is how often it is noted how long it has waited.
const noteEvery = 30 * time.Second

// try goes on with a trial.
func (g *Guard) try(ctx context.Context, r record) error {
	t := r.Trial
	all, err := g.workloads(ctx)
	if err != nil {
		return err
	}
	for _, w := range all {
		if c, ok := t.Images[w.name()]; ok && w.image != c.Old && w.image != c.New {
			return g.end(ctx, t, fmt.Sprintf("somebody else put the image %s into %s", w.image, w.name()))
		}
	}
	waited := time.Duration(t.Seconds)*time.Second + g.waited
	if waited >= g.o.Within {
		why := fmt.Sprintf("it was not marked good within %s", g.o.Within)
		if !t.Agent {
			why = fmt.Sprintf("no pod of %s was ready with it within %s", HostName, g.o.Within)
		}
		if seen := g.hindered(ctx, t); seen != "" {
			why += ": " + seen
		}
		return g.end(ctx, t, why)
	}
	hosts, proven := "", true
	for _, w := range all {
		c, ok := t.Images[w.name()]
		if !ok || !w.daemonSet {
			continue
		}
		if w.image == c.Old && c.Old != c.New {
			return g.put(ctx, w, c.New, "")
		}
		if hosts, proven, err = g.rolled(ctx, w, c.New, t.Away); err != nil {
			return err
		}
	}
	// The agent is exchanged once the image has proven on a node that it can be pulled and
	// starts. It is noted first: from then on the time counts anew.
	if proven && !t.Agent {
		g.waited = 0
		return g.edit(ctx, t, func(r *record) { r.Trial.Agent, r.Trial.Seconds, r.Trial.Hosts = true, 0, hosts })
	}
	if t.Agent {
		for _, w := range all {
			if c := t.Images[w.name()]; !w.daemonSet && w.image == c.Old && c.Old != c.New {
				return g.put(ctx, w, c.New, t.Version)
			}
		}
	}
	if g.waited >= noteEvery || hosts != t.Hosts {
		more := int(g.waited / time.Second)
		if err := g.edit(ctx, t, func(r *record) {
			r.Trial.Seconds += more
			r.Trial.Hosts = hosts
		}); err != nil {
			return err
		}
		g.waited -= time.Duration(more) * time.Second
	}
	return nil
}

// putBack puts back what the trial changed, the agent first, and ends it once that is so.
func (g *Guard) putBack(ctx context.Context, r record) error {
	t := r.Trial
	all, err := g.workloads(ctx)
	if err != nil {
		return err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if c, ok := t.Images[all[i].name()]; ok && all[i].image == c.New && c.Old != c.New {
			if err := g.put(ctx, all[i], c.Old, t.Mark); err != nil {
				return err
			}
		}
	}
	_, err = g.records.edit(ctx, func(r *record) error {
		if r.Trial != nil && r.Trial.Back && r.Trial.Version == t.Version {
			r.Trial = nil
			r.Ended++
		}
		return nil
	})
	return err
}

// sleep takes the image that was proven, and has this pod go.
func (g *Guard) sleep(ctx context.Context, r record) error {
	deployments := g.o.Client.AppsV1().Deployments(g.o.Namespace)
	d, err := deployments.Get(ctx, GuardName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("its own Deployment: %w", err)
	}
	w, err := workloadOf(d.Namespace, d.Name, false, d.Spec.Template)
	if err != nil {
		return err
	}
	var ops []operation
	mine, _, _ := Split(w.image)
	if proven := r.Good.Images["Deployment/"+AgentName]; proven != "" && proven != w.image {
		if of, _, _ := Split(proven); of == mine {
			ops = w.exchange(proven)
		}
	}
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
		ops = append(ops, operation{"replace", "/spec/replicas", 0})
	}
	if len(ops) == 0 {
		return nil
	}
	g.o.Log.Info("there is nothing to guard any more", "image", w.image)
	return g.patch(ctx, workload{namespace: d.Namespace, resource: d.Name}, ops)
}

// operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// put exchanges a workload's image, unless it was exchanged meanwhile, with the mark that
// the agent's pods get.
func (g *Guard) put(ctx context.Context, w workload, image, mark string) error {
	was, _, _ := Split(w.image)
	if of, _, _ := Split(image); of != was { // the agent can write what this is read from
		return fmt.Errorf("the ConfigMap %s asks for the image %.200s in %s, which is not of the repository %s", RecordName, image, w.name(), was)
	}
	ops := w.exchange(image)
	if !w.daemonSet {
		ops = append(ops, operation{"add", "/spec/template/metadata/annotations/muster.dev~1software-version", mark})
	}
	g.o.Log.Info("an image is exchanged", "of", w.name(), "from", w.image, "to", image)
	return g.patch(ctx, w, ops)
}

func (g *Guard) patch(ctx context.Context, w workload, ops []operation) error {
	b, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	o := metav1.PatchOptions{FieldManager: manager}
	if w.daemonSet {
		_, err = g.o.Client.AppsV1().DaemonSets(w.namespace).Patch(ctx, w.resource, types.JSONPatchType, b, o)
	} else {
		_, err = g.o.Client.AppsV1().Deployments(w.namespace).Patch(ctx, w.resource, types.JSONPatchType, b, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", w.name(), err)
	}
	return nil
}

// hindered says why pods with the new image are not ready, as far as their status tells.
func (g *Guard) hindered(ctx context.Context, t *trial) string {
	for _, of := range [][2]string{{g.o.Namespace, AgentName}, {g.o.HostNamespace, HostName}} {
		namespace, app := of[0], of[1]
		if namespace == "" {
			continue
		}
		pods, err := g.o.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + app})
		if err != nil {
			continue
		}
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.ContainerStatuses {
				if !t.puts(pods.Items[i].Spec.Containers, c.Name) {
					continue
				}
				if s := c.State.Waiting; s != nil && s.Reason != "ContainerCreating" {
					return fmt.Sprintf("%s/%s: %s: %.200s", namespace, pods.Items[i].Name, s.Reason, s.Message)
				}
				if s := c.State.Terminated; s != nil {
					return fmt.Sprintf("%s/%s: it exited with %d", namespace, pods.Items[i].Name, s.ExitCode)
				}
			}
		}
	}
	return ""
}

var errNoContainer = errors.New("it has no container " + AgentName)
