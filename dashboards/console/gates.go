package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"muster.dev/muster/control/api/v1alpha1"
)

const (
	maxGateBytes = 1 << 20 // of a gate check: thousands of sites' names, and gates
	gatePoll     = 250 * time.Millisecond
	gateSpare    = 5 * time.Second // of a request's time, to answer in
)

// gateRequest asks whether the sites of a virtual site, or these sites, are well enough
// to go on.
type gateRequest struct {
	Namespace   string          `json:"namespace"`
	VirtualSite string          `json:"virtualSite"`
	Sites       []string        `json:"sites"`
	Peers       string          `json:"peers"`
	Since       string          `json:"since"` // RFC 3339, or how long ago, such as 10m
	Gates       json.RawMessage `json:"gates"`
}

// spec of the GateCheck, or a problem.
func (r *gateRequest) spec(now time.Time) (map[string]any, error) {
	if (r.VirtualSite == "") == (len(r.Sites) == 0) {
		return nil, invalid("virtualSite", "want either the virtual site whose sites have the change, such as shared/canary, or sites")
	}
	out := map[string]any{}
	if r.VirtualSite != "" {
		out["virtualSite"] = r.VirtualSite
	} else {
		out["sites"] = r.Sites
	}
	if r.Peers != "" {
		out["peers"] = r.Peers
	}
	if len(r.Gates) > 0 && string(r.Gates) != "null" {
		out["gates"] = r.Gates
	}
	if r.Since != "" {
		at, err := time.Parse(time.RFC3339, r.Since)
		if err != nil {
			ago, agoErr := parseStep(r.Since)
			if agoErr != nil {
				return nil, invalid("since", "%q: want a time such as 2026-01-31T12:00:00Z, or how long ago, such as 10m", printable(r.Since))
			}
			at = now.Add(-ago)
		}
		if at.After(now.Add(time.Minute)) {
			return nil, invalid("since", "%q is in the future; want when the sites got the change", printable(r.Since))
		}
		out["since"] = at.UTC().Format(time.RFC3339)
	}
	return out, nil
}

// checkView is a gate check and its answer.
type checkView struct {
	Tenant    string     `json:"tenant"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Verdict   string     `json:"verdict"`
	Pass      bool       `json:"pass"`
	Answered  bool       `json:"answered"`
	Message   string     `json:"message"`
	Gates     []gateView `json:"gates"`
	At        *time.Time `json:"at"`
}

func viewCheck(ref virtualRef, g *v1alpha1.GateCheck) checkView {
	st := &g.Status
	v := checkView{Tenant: ref.tenant, Namespace: ref.namespace, Name: g.Name, Verdict: string(cmp.Or(st.Verdict, v1alpha1.GateUnknown)), Pass: st.Verdict == v1alpha1.GatePass,
		Answered: st.Verdict != "", Message: st.Message, Gates: viewGates(st.Gates), At: timeView(st.At)}
	if !v.Answered {
		v.Message = "there is no answer yet; read this check again, or see whether control runs"
	}
	return v
}

// evaluateGates makes a GateCheck as the user and waits for its verdict. Whatever the
// verdict is the status is 200; without one in time it is 202, and the check can be read.
func (c *Console) evaluateGates(w http.ResponseWriter, cl *call) error {
	var in gateRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	spec, err := in.spec(c.now())
	if err != nil {
		return err
	}
	if ns, _, qualified := strings.Cut(in.VirtualSite, "/"); in.Namespace == "" && qualified {
		in.Namespace = ns
	}
	ref, err := c.namespaceOf(cl, "namespace", in.Namespace, createCheck)
	if err != nil {
		return err
	}
	check := &v1alpha1.GateCheck{}
	if err := c.kube.makeObject(cl.Context(), "gatechecks", "GateCheck", ref.kubeNamespace(), "", "api-", spec, false, check); err != nil {
		return err
	}
	ref.name = check.Name
	// It waits as a stream does, and asks the API server all the while; who has too many of
	// these asks by themselves.
	if leave, p := c.streams.enter(cl.id.name, 1, []string{ref.tenant}); p == nil {
		defer leave()
		if check, err = c.awaitVerdict(cl.Context(), ref, check); err != nil {
			return err
		}
	}
	out := viewCheck(ref, check)
	if out.Answered {
		return writeJSON(w, http.StatusOK, out)
	}
	w.Header().Set("Location", fmt.Sprintf("/api/v1/gates/%s/%s?tenant=%s", ref.namespace, ref.name, ref.tenant))
	w.Header().Set("Retry-After", "5")
	return writeJSON(w, http.StatusAccepted, out)
}

// awaitVerdict reads the check until it has one, for as long as a request may take.
func (c *Console) awaitVerdict(ctx context.Context, ref virtualRef, check *v1alpha1.GateCheck) (*v1alpha1.GateCheck, error) {
	wait, cancel := context.WithTimeout(ctx, max(c.timing.request-gateSpare, c.timing.request/2))
	defer cancel()
	tick := time.NewTicker(gatePoll)
	defer tick.Stop()
	for check.Status.Verdict == "" {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.Done():
			return check, nil
		case <-tick.C:
		}
		now := &v1alpha1.GateCheck{}
		err := c.kube.user.Get().Namespace(ref.kubeNamespace()).Resource("gatechecks").Name(ref.name).Do(wait).Into(now)
		if err != nil && wait.Err() == nil {
			return nil, err
		}
		if err == nil {
			check = now
		}
	}
	return check, nil
}

func (c *Console) getGateCheck(w http.ResponseWriter, cl *call) error {
	ref, err := c.namespaceOf(cl, "namespace", cl.PathValue("namespace"), readCheck)
	if err != nil {
		return err
	}
	ref.name = cl.PathValue("check")
	check := &v1alpha1.GateCheck{}
	if err := c.kube.user.Get().Namespace(ref.kubeNamespace()).Resource("gatechecks").Name(ref.name).Do(cl.Context()).Into(check); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewCheck(ref, check))
}
