package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/internal/wire"
)

// takesRules is what admission does: fields that nobody knows and what Prometheus does not take are refused.
func (r *fakeRollouts) takesRules(w http.ResponseWriter, doc map[string]any) bool {
	raw, err := json.Marshal(doc)
	if err != nil {
		r.api.t.Error(err)
	}
	o := &v1alpha1.AlertRules{}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(o); err != nil {
		status(w, 400, metav1.StatusReasonBadRequest, "strict decoding error: %s", err)
		return false
	}
	if errs := validation.AlertRules(o); len(errs) > 0 {
		s := apierrors.NewInvalid(schema.GroupKind{Group: "muster.dev", Kind: "AlertRules"}, o.Name, errs).Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		reply(w, 422, s)
		return false
	}
	return true
}

func rulesBody(name, expr, more string) string {
	return fmt.Sprintf(`{"name":%q,"spec":{"groups":[{"name":"load","rules":[{"alert":"High","expr":%q,"for":"15m"}]}]}%s}`, name, expr, more)
}

// Rules are made as the user, in the tenant's system namespace, and not by a question what would become of them.
func TestAlertRulesAreMadeAsTheUser(t *testing.T) {
	h := newHarness(t)
	h.api.user("editor", "list acme-system", "create/alertrules acme-system", "get/alertrules acme-system")
	const path = "/api/v1/alertrules"
	h.want(200, "editor", "POST", path, rulesBody("high", "up > 1", `,"dryRun":true`))
	h.want(404, "editor", "GET", path+"/high", "")
	h.want(201, "editor", "POST", path, rulesBody("high", "up > 1", ""))
	const asked = "editor create alertrules acme-system"
	if got := h.api.auditLog(); !slices.Equal(got, []string{asked, asked}) {
		t.Errorf("the API server was asked %q", got)
	}
	var v alertRulesView
	h.want(200, "editor", "GET", path+"/high", "").json(t, &v)
	if v.Tenant != "acme" || v.Name != "high" || v.Applied != "Unknown" || v.CreatedAt.IsZero() {
		t.Errorf("made: %+v", v)
	}
	// A name is taken once, for the question as for the deed.
	for _, more := range []string{"", `,"dryRun":true`} {
		var p wire.Problem
		h.want(409, "editor", "POST", path, rulesBody("high", "up > 2", more)).json(t, &p)
		if len(p.Errors) != 1 || p.Errors[0].Field != "name" || !strings.Contains(p.Detail, "acme-system") {
			t.Errorf("a name that is taken: %+v", p)
		}
	}
	for body, field := range map[string]string{
		rulesBody("No_Name", "up > 1", ""): "name", rulesBody("", "up > 1", ""): "name", `{"name":"x"}`: "spec",
		rulesBody("x", "up >", ""): "spec.groups[0].rules[0].expr", `{"name":"x","spec":{},"kind":"AlertRules"}`: "body",
	} {
		var p wire.Problem
		h.want(400, "editor", "POST", path, body).json(t, &p)
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v, want an error of %s", body, p.Errors, field)
		}
	}
	h.want(400, "editor", "POST", path, `{"name":"x","spec":{"gruops":[]}}`)
	h.want(400, "editor", "GET", path+"/No_Name", "")
	h.want(415, "editor", "POST", path, "x", "Content-Type", "text/plain")
	h.want(400, "both", "POST", path, rulesBody("x", "up > 1", "")) // which tenant's?
	h.want(403, "both", "POST", path+"?tenant=acme", rulesBody("x", "up > 1", ""))
	h.want(403, "carol", "GET", path+"/high", "")
	h.want(403, "editor", "POST", path+"?tenant=globex", rulesBody("x", "up > 1", ""))
	h.want(403, "nobody", "POST", path, rulesBody("x", "up > 1", ""))
	h.want(401, "", "POST", path, "{}")
	h.want(413, "editor", "POST", path, rulesBody("x", strings.Repeat("x", maxBodyBytes), ""))
}

// What a condition says of an older form of the object is not said of this one.
func TestAlertRulesSayHowFarTheyHaveCome(t *testing.T) {
	o := &v1alpha1.AlertRules{}
	o.Generation = 2
	for _, c := range []struct {
		generation int64
		want       string
	}{{2, "True"}, {1, "Unknown"}} {
		o.Status = v1alpha1.RulesStatus{Rules: 1, Regionals: 3, Conditions: []metav1.Condition{
			{Type: "Applied", Status: metav1.ConditionTrue, Message: "in effect on every regional", ObservedGeneration: c.generation}}}
		if got := viewAlertRules("acme", o); got.Applied != c.want || got.Regionals != 3 || (got.Message == "") != (c.want == "Unknown") {
			t.Errorf("of generation %d: %+v", c.generation, got)
		}
	}
}
