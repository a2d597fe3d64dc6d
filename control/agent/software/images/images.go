// Package images replaces the agent where it is pods of a Kubernetes cluster: a
// software.Driver whose slots are references to images, and the guard that puts the old
// ones back.
//
// A version's file is a Reference: the digest of an image. It is signed like any file, and
// the container runtime pulls nothing else by it. The repository stays the one that the
// site's operator chose, with its mirrors and pull secrets.
//
// The agent changes no workload. It says in a ConfigMap what is to be tried and wakes the
// guard, which stands in the chart without a pod: another Deployment, with a service account
// of its own and the image that was proven last. The guard notes what runs, exchanges the
// DaemonSet's image and then the agent's, and puts both back unless the new agent marks
// itself good in time. Then it takes the image that was proven, and goes to sleep.
// All that either knows is in the ConfigMap, so whatever dies in between, the next one goes
// on; what a guard has waited is counted there too, by its own monotonic clock while it can
// reach the API server, so that neither a wrong clock nor an outage ends a trial.
//
// An image that somebody else has put there meanwhile is left alone, and ends the trial.
// It changes no RBAC and no configuration: what a version needs of those is applied with
// the chart.
package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"muster.dev/muster/control/agent/software"
)

// Names in the chart.
const (
	AgentName  = "muster-edge"          // the Deployment, and the container in each
	HostName   = "muster-edge-host"     // the DaemonSet, in the host namespace
	GuardName  = "muster-edge-guard"    // the Deployment of the guard
	RecordName = "muster-edge-upgrade"  // the ConfigMap of agent and guard
	MemoryName = "muster-edge-software" // the ConfigMap of the agent alone
	// Annotation of the Deployment's pods is the version that the guard put there; empty:
	// they were installed by hand. The agent gets it in its environment as EnvMark.
	Annotation = "muster.dev/software-version"
	EnvMark    = "MUSTER_SOFTWARE_VERSION"
	EnvPod     = "MUSTER_POD_UID"

	manager = "muster-edge"
)

// Rules are what the agent may, for a Role in its namespace.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{RecordName, MemoryName}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, ResourceNames: []string{AgentName, GuardName}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: []string{GuardName}, Verbs: []string{"patch"}},
	}
}

// Options of a Driver.
type Options struct {
	Client    kubernetes.Interface
	Namespace string
	// Version of this binary, and the Annotation of its pod.
	Version, Mark string
	// Pod is its UID.
	Pod string
	// Wake has the guard run; nil: by its scale.
	Wake func(ctx context.Context) error
}

// Driver implements software.Driver.
type Driver struct {
	o       Options
	records records
	settled bool // whether what runs was installed by hand
	ended   int  // trials that had ended when the state was read last
	woken   time.Time
}

// New checks the options.
func New(o Options) (*Driver, error) {
	if o.Client == nil || o.Namespace == "" || o.Version == "" || o.Pod == "" {
		return nil, fmt.Errorf("want a client, the namespace, the version and the UID of the pod, which the chart gives in %s", EnvPod)
	}
	return &Driver{o: o, records: records{o.Client, o.Namespace}}, nil
}

// State implements software.Driver.
func (d *Driver) State(ctx context.Context) (software.State, error) {
	if d.o.Mark != "" && d.o.Mark != d.o.Version {
		return software.State{}, fmt.Errorf("the image holds muster-edge %s, and was put here as %s; release it as what `muster-edge --version` says, or apply the manifest again if it was set by hand", d.o.Version, d.o.Mark)
	}
	if err := d.settle(ctx); err != nil {
		return software.State{}, err
	}
	r, err := d.records.load(ctx)
	if err != nil {
		return software.State{}, err
	}
	d.ended = r.Ended
	s := software.State{Running: d.o.Version, Boot: fmt.Sprintf("%s#%d", d.o.Pod, r.Ended), Good: r.Good.Version == d.o.Version, Why: r.Why}
	switch {
	case !s.Good && r.Good.whole():
		s.Other = r.Good.Version
	case s.Good && r.Other.whole():
		s.Other = r.Other.Version
	}
	return s, nil
}

// settle takes what somebody installed for good, once a process: what the Deployment asks
// for and is not on trial, which it ends. A pod that is on its way out asks for nothing.
func (d *Driver) settle(ctx context.Context) error {
	if d.settled {
		return nil
	}
	dep, err := d.o.Client.AppsV1().Deployments(d.o.Namespace).Get(ctx, AgentName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the Deployment %s/%s: %w", d.o.Namespace, AgentName, err)
	}
	if dep.Spec.Template.Annotations[Annotation] == d.o.Mark {
		trial := false
		if _, err := d.records.edit(ctx, func(r *record) error {
			if trial = r.Trial != nil && r.Trial.Version == d.o.Version; trial || r.Good.Version == d.o.Version {
				return nil
			}
			r.endTrial()
			was := r.Good
			if r.Good = (release{Version: d.o.Version}); r.Other != nil && r.Other.Version == d.o.Version {
				r.Good = *r.Other
			}
			if r.Other = &was; !was.whole() {
				r.Other = nil
			}
			return nil
		}); err != nil || trial {
			return err
		}
	}
	d.settled = true
	return nil
}

// Write implements software.Driver.
func (d *Driver) Write(ctx context.Context, version string, image io.Reader, size int64) error {
	if size > maxFile {
		return fmt.Errorf("the file of %s has %d bytes, and a reference of an image at most %d", version, size, maxFile)
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	if _, err := d.records.edit(ctx, func(r *record) error {
		if r.Good.Version != d.o.Version {
			return errors.New("what runs was not marked good")
		}
		r.endTrial()
		r.Other = nil
		return nil
	}); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(image, maxFile+1))
	if err == nil && int64(len(b)) != size {
		err = fmt.Errorf("the file has %d bytes, want %d", len(b), size)
	}
	if err == nil {
		_, err = ParseReference(b)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", version, err)
	}
	_, err = d.records.edit(ctx, func(r *record) error {
		if r.Good.Version != d.o.Version || r.Trial != nil && !r.Trial.Back {
			return errors.New("something else was installed meanwhile")
		}
		r.Other = &release{Version: version, File: string(b)}
		return nil
	})
	return err
}

// Verify implements software.Driver.
func (d *Driver) Verify(ctx context.Context, version, digest string, _ int64) error {
	_, err := d.records.edit(ctx, func(r *record) error {
		slot := r.Other
		if r.Good.Version == version {
			slot = &r.Good
		}
		switch {
		case slot == nil || slot.Version != version || slot.File == "":
			return fmt.Errorf("the other slot does not hold the file of %s", version)
		case sum(slot.File) != digest:
			return fmt.Errorf("the other slot holds another file of %s: digest %.12s…, want %.12s…", version, sum(slot.File), digest)
		}
		slot.Verified = true
		return nil
	})
	return err
}

// Switch implements software.Driver.
func (d *Driver) Switch(ctx context.Context, version string) error {
	_, err := d.records.edit(ctx, func(r *record) error {
		switch {
		case r.Good.Version == version: // this pod goes, and that one comes, by itself
			return nil
		case r.Trial != nil && (r.Trial.Back || r.Trial.Version != version):
			return fmt.Errorf("the images from before %s are being put back", r.Trial.Version)
		case r.Other == nil || r.Other.Version != version || !r.Other.whole():
			return fmt.Errorf("the other slot does not hold %s, verified", version)
		case r.Trial == nil && r.Ended != d.ended: // another one would forget why
			return fmt.Errorf("the trial of %s has just ended: %s", version, r.Why)
		case r.Trial == nil:
			r.Trial, r.Why = &trial{Version: version}, ""
		}
		return nil
	})
	return err
}

// wakeWithin is how long a guard may take to come up before it is said.
const wakeWithin = 2 * time.Minute

// Boot implements software.Driver: it wakes the guard, which does the rest.
func (d *Driver) Boot(ctx context.Context) error {
	if d.o.Wake != nil {
		return d.o.Wake(ctx)
	}
	deployments := d.o.Client.AppsV1().Deployments(d.o.Namespace)
	g, err := deployments.Get(ctx, GuardName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("the Deployment %s/%s of the guard: %w", d.o.Namespace, GuardName, err)
	}
	if g.Spec.Replicas == nil || *g.Spec.Replicas != 1 {
		d.woken = time.Now()
		if _, err := deployments.Patch(ctx, GuardName, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{FieldManager: manager}, "scale"); err != nil {
			return fmt.Errorf("wake the guard, Deployment %s/%s: %w", d.o.Namespace, GuardName, err)
		}
		return nil
	}
	if d.woken.IsZero() {
		d.woken = time.Now()
	}
	if g.Status.ReadyReplicas == 0 && time.Since(d.woken) > wakeWithin {
		return fmt.Errorf("the guard does not come up: kubectl -n %s describe pods -l app.kubernetes.io/name=%s", d.o.Namespace, GuardName)
	}
	return nil
}

// MarkGood implements software.Driver.
func (d *Driver) MarkGood(ctx context.Context) error {
	_, err := d.records.edit(ctx, func(r *record) error {
		if r.Trial == nil && r.Good.Version == d.o.Version {
			return nil
		}
		if r.Trial == nil || r.Trial.Back || r.Trial.Version != d.o.Version || r.Other == nil {
			return errors.New("its trial was ended: the images from before are put back")
		}
		was, now := r.Good, *r.Other
		was.Images, now.Images = map[string]string{}, map[string]string{}
		for name, c := range r.Trial.Images {
			was.Images[name], now.Images[name] = c.Old, c.New
		}
		r.Good, r.Other, r.Trial, r.Why = now, &was, nil, ""
		return nil
	})
	return err
}

// FallBack implements software.Driver.
func (d *Driver) FallBack(ctx context.Context) error {
	_, err := d.records.edit(ctx, func(r *record) error {
		r.endTrial()
		return nil
	})
	return err
}

// Hosts says what the DaemonSet lacks of the version on trial, nil: nothing. It is part of
// whether the site is well with it.
func (d *Driver) Hosts(ctx context.Context) error {
	r, err := d.records.load(ctx)
	if err == nil && r.Trial != nil && r.Trial.Hosts != "" {
		err = errors.New(r.Trial.Hosts)
	}
	return err
}
