package simcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/tunnel"
)

var podResource = schema.GroupResource{Resource: "pods"}

// Serve answers on a tunnel: the logs of pods, which are made up, their removal and
// eviction, and a refusal of all else.
func (c *Cluster) Serve(ctx context.Context, conn net.Conn) {
	tunnel.Serve(ctx, conn, &http.Server{Handler: c.handler(), ReadHeaderTimeout: 30 * time.Second})
}

func (c *Cluster) handler() http.Handler {
	const pod = "/api/v1/namespaces/{namespace}/pods/{name}"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pod+"/log", c.serveLog)
	mux.HandleFunc("DELETE "+pod, func(w http.ResponseWriter, req *http.Request) {
		o := &metav1.DeleteOptions{}
		err := json.NewDecoder(io.LimitReader(req.Body, 1<<20)).Decode(o)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		c.serveRemoval(w, req, http.StatusOK, o, err)
	})
	mux.HandleFunc("POST "+pod+"/eviction", func(w http.ResponseWriter, req *http.Request) {
		e := &policyv1.Eviction{}
		err := json.NewDecoder(io.LimitReader(req.Body, 1<<20)).Decode(e)
		c.serveRemoval(w, req, http.StatusCreated, e.DeleteOptions, err)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonMethodNotAllowed, Code: http.StatusMethodNotAllowed,
			Message: "this site's cluster is simulated: its pods have logs and can be deleted, and no process runs in them"}})
	})
	return mux
}

func answer(w http.ResponseWriter, code int, s metav1.Status) {
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(s)
}

func refuse(w http.ResponseWriter, err error) {
	s := apierrors.NewBadRequest(err.Error()).Status()
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		s = known.Status()
	}
	answer(w, int(s.Code), s)
}

func (c *Cluster) serveRemoval(w http.ResponseWriter, req *http.Request, code int, o *metav1.DeleteOptions, err error) {
	if err == nil {
		err = c.removePod(req.PathValue("namespace"), req.PathValue("name"), o)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, code, metav1.Status{Status: metav1.StatusSuccess, Code: int32(code)})
}

// findLocked finds a pod and what made it.
func (c *Cluster) findLocked(namespace, name string) (*controller, int, error) {
	for _, w := range c.running {
		if w.namespace != namespace {
			continue
		}
		if i := slices.IndexFunc(w.pods, func(p *pod) bool { return p.name == name }); i >= 0 {
			return w, i, nil
		}
	}
	return nil, 0, apierrors.NewNotFound(podResource, name)
}

// removePod removes a pod, in whose place another one comes at once, but for those of Jobs.
func (c *Cluster) removePod(namespace, name string, o *metav1.DeleteOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, i, err := c.findLocked(namespace, name)
	if err != nil {
		return err
	}
	p := w.pods[i]
	if o != nil && o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != c.uid(w, p) {
		return apierrors.NewConflict(podResource, name, fmt.Errorf("its UID is %s", c.uid(w, p)))
	}
	if o != nil && len(o.DryRun) > 0 {
		return nil
	}
	c.mirror.Drop(w.key(p))
	if w.kind == "Job" {
		w.pods = slices.Delete(w.pods, i, i+1)
		return nil
	}
	p = c.beginPod(w, &pod{ordinal: p.ordinal, serial: p.serial + 1})
	w.pods[i] = p
	c.put("Pod", namespace, p.name, c.pod(w, p))
	return nil
}
