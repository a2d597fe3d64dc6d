package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/retry"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// discoveredPrefix marks the labels that only Muster sets.
const discoveredPrefix = "muster.dev/"

// siteView is a site as the control plane knows it.
type siteView struct {
	Name                string            `json:"name"`
	Tenant              string            `json:"tenant"`
	Phase               fleet.Phase       `json:"phase"`
	Labels              map[string]string `json:"labels"`
	SystemLabels        map[string]string `json:"systemLabels"` // those under muster.dev/
	Versions            map[string]string `json:"versions"`
	Software            []softwareView    `json:"software"`
	Conditions          []conditionView   `json:"conditions"`
	Place               *placeView        `json:"place"`
	Maintenance         *maintenanceView  `json:"maintenance"`
	MaintenanceWindows  []windowView      `json:"maintenanceWindows"` // planned
	Reset               *resetView        `json:"reset"`
	Regional            string            `json:"regional"`
	LastSeen            *time.Time        `json:"lastSeen"`
	CreatedAt           time.Time         `json:"createdAt"`
	CertificateNotAfter *time.Time        `json:"certificateNotAfter"`
	PolicyHash          string            `json:"policyHash"`
	Token               string            `json:"token"`
	Approved            bool              `json:"approved"`
	Decommissioned      bool              `json:"decommissioned"`
}

// softwareView is how far a site is with what it shall run of a component.
type softwareView struct {
	Component string     `json:"component"`
	Running   string     `json:"running"`
	Wanted    string     `json:"wanted"`
	State     string     `json:"state"`
	Percent   *int32     `json:"percent"`
	StartsAt  *time.Time `json:"startsAt"`
	Message   string     `json:"message"`
}

type conditionView struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

type placeView struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
	Address   string  `json:"address"`
}

type maintenanceView struct {
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
}

func viewSite(tenant string, s *v1alpha1.Site, now time.Time) siteView {
	v := siteView{
		Name: s.Name, Tenant: tenant, Phase: phaseOf(s), Versions: s.Status.Versions,
		Conditions: make([]conditionView, 0, len(s.Status.Conditions)),
		Regional:   s.Status.Regional, LastSeen: timeView(s.Status.LastSeen), CreatedAt: s.CreationTimestamp.UTC(),
		CertificateNotAfter: timeView(s.Status.CertificateNotAfter), PolicyHash: s.Status.PolicyHash,
		Token: s.Spec.Token, Approved: s.Spec.Approved, Decommissioned: s.Spec.Decommissioned,
	}
	v.MaintenanceWindows = viewWindows(s.Spec.MaintenanceWindows)
	v.Reset = viewReset(s, now)
	v.Labels, v.SystemLabels = splitLabels(s.Labels)
	if v.Versions == nil {
		v.Versions = map[string]string{}
	}
	v.Software = make([]softwareView, 0, len(s.Status.Software))
	for _, x := range s.Status.Software {
		v.Software = append(v.Software, softwareView{string(x.Component), x.Running, x.Wanted, string(x.State), x.Percent, timeView(x.StartsAt), x.Message})
	}
	for _, c := range s.Status.Conditions {
		v.Conditions = append(v.Conditions, conditionView{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime.UTC()})
	}
	if p := s.Spec.Place; p != nil {
		lat, err1 := strconv.ParseFloat(p.Latitude, 64)
		lon, err2 := strconv.ParseFloat(p.Longitude, 64)
		if err1 == nil && err2 == nil { // admission holds them to numbers
			v.Place = &placeView{lat, lon, p.Address}
		}
	}
	if m := s.MaintenanceAt(now); m != nil {
		v.Maintenance = &maintenanceView{m.Reason, timeView(m.Until)}
	}
	return v
}

// phaseOf tells the phase also before a controller has written it.
func phaseOf(s *v1alpha1.Site) fleet.Phase {
	switch {
	case s.Spec.Decommissioned:
		return fleet.PhaseDecommissioned
	case s.Status.Phase != "" && (s.Status.Phase != fleet.PhasePending || !s.Spec.Approved):
		return s.Status.Phase
	case s.Spec.Approved:
		return fleet.PhaseApproved
	}
	return fleet.PhasePending
}

func splitLabels(in map[string]string) (own, discovered map[string]string) {
	own, discovered = map[string]string{}, map[string]string{}
	for k, v := range in {
		if strings.HasPrefix(k, discoveredPrefix) {
			discovered[k] = v
		} else {
			own[k] = v
		}
	}
	return own, discovered
}

func timeView(t *metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

func (c *Console) getSite(w http.ResponseWriter, cl *call) error {
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	s, err := c.kube.getSite(cl.Context(), id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewSite(id.Tenant, s, c.now()))
}

type maintenanceRequest struct {
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until"`
}

func (c *Console) putMaintenance(w http.ResponseWriter, cl *call) error {
	var in maintenanceRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	m, err := in.value(c.now())
	if err != nil {
		return err
	}
	return c.setMaintenance(w, cl, m)
}

// value is what a merge patch has for it, or a problem.
func (in *maintenanceRequest) value(now time.Time) (map[string]any, error) {
	reason := strings.TrimSpace(in.Reason)
	if n := utf8.RuneCountInString(reason); n < 1 || n > 200 {
		return nil, invalid("reason", "want 1 to 200 characters, have %d", n)
	}
	if in.Until != nil && !in.Until.After(now) {
		return nil, invalid("until", "%s is in the past; leave it out for maintenance without an end", in.Until.Format(time.RFC3339))
	}
	m := map[string]any{"reason": reason, "until": nil} // null takes an old end away
	if in.Until != nil {
		m["until"] = metav1.NewTime(in.Until.UTC())
	}
	return m, nil
}

func (c *Console) deleteMaintenance(w http.ResponseWriter, cl *call) error {
	return c.setMaintenance(w, cl, nil)
}

// setMaintenance answers 200 with the site, or 204 when maintenance is taken away.
func (c *Console) setMaintenance(w http.ResponseWriter, cl *call, m map[string]any) error {
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"maintenance": m}})
	if err != nil {
		return err
	}
	s, err := c.kube.patchSite(cl.Context(), id, patch)
	if err != nil {
		return err
	}
	if m == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return writeJSON(w, http.StatusOK, viewSite(id.Tenant, s, c.now()))
}

type approveRequest struct {
	Labels map[string]string `json:"labels"`
	Place  *placeRequest     `json:"place"`
	// PublicKey, when given, approves only a site that registered with this key: the
	// one that the person saw, not one that took the name since.
	PublicKey string `json:"publicKey"`
}

type placeRequest struct {
	Latitude  *float64 `json:"latitude"`
	Longitude *float64 `json:"longitude"`
	Address   string   `json:"address"`
}

func (a *approveRequest) check() error {
	var errs []wire.FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, wire.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
		field := "labels." + printable(k)
		if msgs := validation.IsQualifiedName(k); len(msgs) > 0 {
			bad(field, "not a label's name: %s", msgs[0])
		} else if strings.HasPrefix(k, discoveredPrefix) {
			bad(field, "labels under muster.dev/ are discovered or set by Muster; remove it")
		}
		if msgs := validation.IsValidLabelValue(a.Labels[k]); len(msgs) > 0 {
			bad(field, "not a label's value: %s", msgs[0])
		}
	}
	if p := a.Place; p != nil {
		if p.Latitude == nil || math.Abs(*p.Latitude) > 90 {
			bad("place.latitude", "want degrees north from -90 to 90")
		}
		if p.Longitude == nil || math.Abs(*p.Longitude) > 180 {
			bad("place.longitude", "want degrees east from -180 to 180")
		}
		if utf8.RuneCountInString(p.Address) > 200 {
			bad("place.address", "want at most 200 characters")
		}
	}
	if len(errs) > 0 {
		return invalidFields(errs)
	}
	return nil
}

// place is the wanted place as the API type holds it, or nil.
func (a *approveRequest) place() *v1alpha1.Place {
	if a.Place == nil {
		return nil
	}
	return &v1alpha1.Place{Latitude: degrees(*a.Place.Latitude), Longitude: degrees(*a.Place.Longitude), Address: a.Place.Address}
}

// degrees has six digits after the point, which is a tenth of a metre.
func degrees(f float64) string {
	s := strings.TrimRight(strings.TrimRight(strconv.FormatFloat(f, 'f', 6, 64), "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}

// holds tells whether the site already is what the request asks for.
func (a *approveRequest) holds(s *v1alpha1.Site) bool {
	for k, v := range a.Labels {
		if have, ok := s.Labels[k]; !ok || have != v {
			return false
		}
	}
	p := a.place()
	return p == nil || s.Spec.Place != nil && *p == *s.Spec.Place
}

func (c *Console) approve(w http.ResponseWriter, cl *call) error {
	var in approveRequest
	if err := readJSON(cl.Request, &in, true); err != nil {
		return err
	}
	if err := in.check(); err != nil {
		return err
	}
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	s, err := c.decide(cl.Context(), id, func(s *v1alpha1.Site) (map[string]any, error) {
		switch {
		case in.PublicKey != "" && in.PublicKey != s.Spec.PublicKey:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s has registered with another key since you looked; look again", id)
		case s.Spec.Decommissioned:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is rejected or decommissioned, for good; delete the Site and register the machine anew", id)
		case s.Spec.Approved && in.holds(s):
			return nil, nil
		case s.Spec.Approved:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is approved already; change its labels and place with kubectl or `muster site`", id)
		}
		spec := map[string]any{"approved": true}
		if p := in.place(); p != nil {
			spec["place"] = p
		}
		patch := map[string]any{"spec": spec}
		if len(in.Labels) > 0 {
			patch["metadata"] = map[string]any{"labels": in.Labels}
		}
		return patch, nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewSite(id.Tenant, s, c.now()))
}

// reject refuses the machine's key for good. It doesn't delete the Site: the machine
// would register anew a moment later.
func (c *Console) reject(w http.ResponseWriter, cl *call) error {
	id, err := c.siteOf(cl)
	if err != nil {
		return err
	}
	_, err = c.decide(cl.Context(), id, func(s *v1alpha1.Site) (map[string]any, error) {
		switch {
		case s.Spec.Approved:
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is approved already; use `muster site decommission`", id)
		case s.Spec.Decommissioned:
			return nil, nil
		}
		return map[string]any{"spec": map[string]any{"decommissioned": true}}, nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// decide edits the site, and returns when the list of registrations shows the decision.
func (c *Console) decide(ctx context.Context, id fleet.SiteID, change func(*v1alpha1.Site) (map[string]any, error)) (*v1alpha1.Site, error) {
	s, patched, err := c.editSite(ctx, id, change)
	if err == nil && patched {
		c.pending.awaitDecision(ctx, s)
	}
	return s, err
}

// editSite reads the site and applies the patch that change returns for exactly that
// version of it, both as the user; nil changes nothing.
func (c *Console) editSite(ctx context.Context, id fleet.SiteID, change func(*v1alpha1.Site) (map[string]any, error)) (out *v1alpha1.Site, patched bool, err error) {
	var uid types.UID
	// The status may be written in between.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := c.kube.getSite(ctx, id)
		if err != nil {
			return err
		}
		if uid != "" && uid != s.UID {
			return newProblem(http.StatusConflict, wire.ProblemConflict, "site %s was deleted and has registered anew; look again", id)
		}
		uid, out = s.UID, s
		patch, err := change(s)
		if err != nil || patch == nil {
			return err
		}
		meta, ok := patch["metadata"].(map[string]any)
		if !ok {
			meta = map[string]any{}
			patch["metadata"] = meta
		}
		meta["resourceVersion"], meta["uid"] = s.ResourceVersion, s.UID
		body, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		if out, err = c.kube.patchSite(ctx, id, body); err == nil {
			patched = true
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return out, patched, nil
}
