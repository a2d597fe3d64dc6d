package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

var createRules = right{verb: "create", resource: "alertrules"}

type alertRulesRequest struct {
	Name   string          `json:"name"`
	Spec   json.RawMessage `json:"spec"`
	DryRun bool            `json:"dryRun"`
}

// alertRulesView is an AlertRules object, and how far it has come.
type alertRulesView struct {
	Tenant    string    `json:"tenant"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Rules     int32     `json:"rules"`
	Regionals int32     `json:"regionals"` // that evaluate them as they stand
	// Applied is the condition of that name, Unknown until somebody has looked.
	Applied string `json:"applied"`
	Message string `json:"message"`
}

func viewAlertRules(tenant string, o *v1alpha1.AlertRules) alertRulesView {
	out := alertRulesView{Tenant: tenant, Name: o.Name, CreatedAt: o.CreationTimestamp.UTC(), Rules: o.Status.Rules, Regionals: o.Status.Regionals, Applied: "Unknown"}
	c := meta.FindStatusCondition(o.Status.Conditions, "Applied")
	if c != nil && c.ObservedGeneration == o.Generation {
		out.Applied, out.Message = string(c.Status), c.Message
	}
	return out
}

// rulesTenant is the one tenant whose rules a request is about.
func (c *Console) rulesTenant(cl *call) (string, error) {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return "", err
	}
	if len(set.names) != 1 {
		return "", manyTenants("alert rules belong to one tenant", set)
	}
	return set.names[0], nil
}

// postAlertRules makes an AlertRules object as the user; what is wrong with it the API server says.
func (c *Console) postAlertRules(w http.ResponseWriter, cl *call) error {
	var in alertRulesRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return err
	}
	if len(validation.IsDNS1123Subdomain(in.Name)) > 0 {
		return invalid("name", "%q: want lower-case letters, digits, '-' or '.', such as site-cpu-high", printable(in.Name))
	}
	if len(in.Spec) == 0 {
		return invalid("spec", "is missing: want groups of rules, as in the spec of AlertRules")
	}
	tenant, err := c.rulesTenant(cl)
	if err != nil {
		return err
	}
	out := &v1alpha1.AlertRules{}
	namespace := fleet.SystemNamespace(tenant)
	err = c.kube.makeObject(cl.Context(), "alertrules", "AlertRules", namespace, in.Name, "", in.Spec, in.DryRun, out)
	if apierrors.IsAlreadyExists(err) {
		p := newProblem(http.StatusConflict, wire.ProblemConflict, "%s has AlertRules %s already; choose another name", namespace, in.Name)
		p.Errors = []wire.FieldError{{Field: "name", Detail: fmt.Sprintf("%s has AlertRules of that name already; choose another", namespace)}}
		return p
	}
	if err != nil {
		return err
	}
	code := http.StatusCreated
	if in.DryRun {
		code = http.StatusOK
	}
	return writeJSON(w, code, viewAlertRules(tenant, out))
}

func (c *Console) getAlertRules(w http.ResponseWriter, cl *call) error {
	tenant, err := c.rulesTenant(cl)
	if err != nil {
		return err
	}
	out := &v1alpha1.AlertRules{}
	err = c.kube.user.Get().Namespace(fleet.SystemNamespace(tenant)).Resource("alertrules").Name(cl.PathValue("rules")).Do(cl.Context()).Into(out)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, viewAlertRules(tenant, out))
}
