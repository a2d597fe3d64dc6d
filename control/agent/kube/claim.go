package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"muster.dev/muster/internal/workload"
)

// Where a cluster says whose it is: a ConfigMap, since Rules allow those, in a namespace
// that every cluster has, since two installations have namespaces of their own.
const (
	claimNamespace, claimName = metav1.NamespaceSystem, "muster-edge"
	claimSite, claimRenewed   = "site", "renewed"
)

// errHeld says that the cluster is another site's.
var errHeld = errors.New("the cluster is another site's")

// errReadOnly says that the API server answers, and that nothing can be changed: its store
// is full or has no majority, say. Renewing the claim is how that is found out.
var errReadOnly = errors.New("the site's API server answers, but takes no changes; what runs goes on")

const reasonHeld, reasonReadOnly = "HeldByAnotherSite", "ApiServerReadOnly"

// claim is what is known of whose the cluster is.
type claim struct {
	ours     bool
	version  string    // of the ConfigMap of another site
	since    time.Time // it has been at that version
	silenced bool      // it was said that it can't be known
}

// claim makes the cluster this site's, or returns errHeld: two agents that apply different
// sets to one cluster would remove each other's objects for ever. Another site loses it
// when it has not renewed its claim for Options.ClaimFor by this process' clock, so clocks
// of nodes need not agree. Agents of one site, of which there are two for a moment while
// their pod is replaced, share a claim.
func (w *worker) claim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	site := w.taken.Site.String()
	maps := w.cluster.core.ConfigMaps(claimNamespace)
	data := map[string]string{claimSite: site, claimRenewed: time.Now().UTC().Format(time.RFC3339)}
	cm, err := maps.Get(ctx, claimName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: claimNamespace, Name: claimName}, Data: data}, metav1.CreateOptions{FieldManager: workload.FieldManager})
		return w.claimed(err, errReadOnly)
	}
	if err != nil {
		return w.claimed(err, errDown)
	}
	if other := cm.Data[claimSite]; other != site && other != "" {
		if cm.ResourceVersion != w.held.version {
			w.held.version, w.held.since = cm.ResourceVersion, time.Now()
		}
		if time.Since(w.held.since) < w.opts.ClaimFor {
			w.setOurs(false)
			return fmt.Errorf("%w: a muster-edge of %s applies to it, last at %s; remove one of the two. Once that one is gone this one takes over by itself, after %s", errHeld, other, cm.Data[claimRenewed], w.opts.ClaimFor)
		}
		w.opts.Logger.Warn("the cluster was another site's, which has not been heard of; it is this one's now, and what that one left there is removed", "other", other, "after", w.opts.ClaimFor)
		w.mu.Lock()
		w.tookOver = time.Now()
		w.mu.Unlock()
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": cm.ResourceVersion}, "data": data})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	_, err = maps.Patch(ctx, claimName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: workload.FieldManager})
	if apierrors.IsConflict(err) && w.held.ours {
		return nil // another agent of this site was quicker; else the next look tells
	}
	return w.claimed(err, errReadOnly)
}

func (w *worker) setOurs(ours bool) {
	w.held.ours = ours
	w.ours.Store(ours)
}

// claimed notes how asking went. answered is what it means that the API server says that
// it can't do it.
func (w *worker) claimed(err, answered error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		w.setOurs(true)
		return nil
	case apierrors.IsForbidden(err):
		if !w.held.silenced {
			w.held.silenced = true
			w.opts.Logger.Warn("whether another muster-edge applies to this cluster can't be known: give the agent its rights on configmaps of "+claimNamespace, "err", err)
		}
		w.setOurs(true)
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w: another muster-edge claims it at this moment", errHeld)
	case errors.As(err, &status) && status.Status().Code != http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", answered, err)
	default:
		return fmt.Errorf("%w: claim the cluster: %w", errDown, err)
	}
}
