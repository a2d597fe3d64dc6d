package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	pathChangeSites = "/api/v1/sites:change"
	// maxChanged sites of one request; pages with more of them send several.
	maxChanged    = 500
	maxLabels     = 20 // that one request changes
	parallelSites = 8
)

// changeRequest does one thing to many sites: exactly one of its last four fields is set.
type changeRequest struct {
	Sites          []siteRef           `json:"sites"`
	Labels         map[string]*string  `json:"labels"` // null takes a label away
	Maintenance    *maintenanceRequest `json:"maintenance"`
	EndMaintenance bool                `json:"endMaintenance"`
	Approve        bool                `json:"approve"`
}

type siteRef struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
}

// changeResult tells of those that failed; all others are as was asked for.
type changeResult struct {
	Changed int            `json:"changed"`
	Failed  []changeFailed `json:"failed"`
}

type changeFailed struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// change returns what is done to each site.
func (in *changeRequest) change(c *Console) (func(context.Context, fleet.SiteID) error, error) {
	if n := len(in.Sites); n < 1 || n > maxChanged {
		return nil, invalid("sites", "want 1 to %d of them, have %d; send more in several requests", maxChanged, n)
	}
	asked := 0
	for _, set := range []bool{len(in.Labels) > 0, in.Maintenance != nil, in.EndMaintenance, in.Approve} {
		if set {
			asked++
		}
	}
	if asked != 1 {
		return nil, invalid("body", "want exactly one of labels, maintenance, endMaintenance and approve")
	}
	patch := func(what any) (func(context.Context, fleet.SiteID) error, error) {
		body, err := json.Marshal(what)
		return func(ctx context.Context, id fleet.SiteID) error {
			_, err := c.kube.patchSite(ctx, id, body)
			return err
		}, err
	}
	switch {
	case in.Maintenance != nil:
		m, err := in.Maintenance.value(c.now())
		if err != nil {
			return nil, err
		}
		return patch(map[string]any{"spec": map[string]any{"maintenance": m}})
	case in.EndMaintenance:
		return patch(map[string]any{"spec": map[string]any{"maintenance": nil}})
	case in.Approve:
		return func(ctx context.Context, id fleet.SiteID) error {
			_, err := c.decide(ctx, id, func(s *v1alpha1.Site) (map[string]any, error) {
				switch {
				case s.Spec.Decommissioned:
					return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "site %s is rejected or decommissioned, for good; delete the Site and register the machine anew", id)
				case s.Spec.Approved:
					return nil, nil
				}
				return map[string]any{"spec": map[string]any{"approved": true}}, nil
			})
			return err
		}, nil
	}
	if err := checkLabels(in.Labels); err != nil {
		return nil, err
	}
	return patch(map[string]any{"metadata": map[string]any{"labels": in.Labels}})
}

func checkLabels(labels map[string]*string) error {
	var errs []wire.FieldError
	if len(labels) > maxLabels {
		return invalid("labels", "want at most %d of them, have %d", maxLabels, len(labels))
	}
	for k, v := range labels {
		field := "labels." + printable(k)
		if msgs := validation.IsQualifiedName(k); len(msgs) > 0 {
			errs = append(errs, wire.FieldError{Field: field, Detail: "not a label's name: " + msgs[0]})
		} else if strings.HasPrefix(k, discoveredPrefix) {
			errs = append(errs, wire.FieldError{Field: field, Detail: "labels under muster.dev/ are discovered or set by Muster; remove it"})
		}
		if v == nil {
			continue
		}
		if msgs := validation.IsValidLabelValue(*v); len(msgs) > 0 {
			errs = append(errs, wire.FieldError{Field: field, Detail: "not a label's value: " + msgs[0]})
		}
	}
	if len(errs) > 0 {
		return invalidFields(errs)
	}
	return nil
}

// changeSites does one thing to many sites, each as the user and by itself: some may fail.
func (c *Console) changeSites(w http.ResponseWriter, cl *call) error {
	var in changeRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	change, err := in.change(c)
	if err != nil {
		return err
	}
	for _, s := range in.Sites {
		if err := (fleet.SiteID{Tenant: s.Tenant, Name: s.Name}).Validate(); err != nil {
			return invalid("sites", "%s", err)
		}
	}
	errs := make([]error, len(in.Sites))
	var g errgroup.Group
	g.SetLimit(parallelSites)
	for i, s := range in.Sites {
		g.Go(func() error {
			errs[i] = change(cl.Context(), fleet.SiteID(s))
			return nil
		})
	}
	_ = g.Wait() // each has its own
	out := changeResult{Failed: []changeFailed{}}
	for i, s := range in.Sites {
		if errs[i] == nil {
			out.Changed++
			continue
		}
		p := asProblem(errs[i], "change the site")
		out.Failed = append(out.Failed, changeFailed{s.Tenant, s.Name, p.Status, p.Detail})
	}
	return writeJSON(w, http.StatusOK, out)
}
