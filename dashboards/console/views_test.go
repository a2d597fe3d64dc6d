package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/wire"
)

// fakeViews are the SavedViews of the fake API server, by namespace/name.
type fakeViews map[string]*v1alpha1.SavedViews

// serveViews lists for the console by name, and reads, makes and updates for users, who keep to what admission lets
// them write: their own, and with the verb share those of all.
func (f *fakeAPI) serveViews(w http.ResponseWriter, r *http.Request, as string, parts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.views == nil {
		f.views = fakeViews{}
	}
	if as == "" {
		name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		if !ok || r.Method != "GET" {
			f.t.Errorf("the console itself asks %s %s", r.Method, r.URL)
		}
		out := v1alpha1.SavedViewsList{TypeMeta: metav1.TypeMeta{Kind: "SavedViewsList", APIVersion: v1alpha1.GroupVersion.String()}}
		for _, o := range f.views {
			if o.Name == name {
				out.Items = append(out.Items, *o)
			}
		}
		reply(w, 200, out)
		return
	}
	var in v1alpha1.SavedViews
	if r.Method != "GET" {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			f.t.Error(err)
		}
	}
	name := in.Name
	if len(parts) == 3 {
		name = parts[2]
	}
	key := parts[0] + "/" + name
	have := f.views[key]
	mine := name == v1alpha1.ViewsName(as) || name == v1alpha1.SharedViews && (r.Method == "GET" || f.may(as, "share/savedviews", parts[0]))
	switch {
	case !f.may(as, "list", parts[0]) || !mine:
		status(w, 403, metav1.StatusReasonForbidden, "savedviews %q is forbidden", name)
	case r.Method == "GET" && have == nil:
		status(w, 404, metav1.StatusReasonNotFound, "savedviews %q not found", name)
	case r.Method == "GET":
		reply(w, 200, have)
	case r.Method == "POST" && have != nil:
		status(w, 409, metav1.StatusReasonAlreadyExists, "savedviews %q already exists", name)
	case r.Method == "PUT" && (have == nil || have.ResourceVersion != in.ResourceVersion):
		status(w, 409, metav1.StatusReasonConflict, "the object has been modified")
	default:
		f.version++
		in.ResourceVersion = strconv.Itoa(f.version)
		f.views[key] = &in
		reply(w, map[string]int{"POST": 201, "PUT": 200}[r.Method], in)
	}
}

func (h *harness) viewsOf(t *testing.T, user, tenant string) string {
	t.Helper()
	var list wire.SavedViewList
	h.want(200, user, "GET", wire.ViewsPath+"?tenant="+tenant, "").json(t, &list)
	var out []string
	for _, v := range list.Views {
		out = append(out, fmt.Sprintf("%s/%s:%s:%t", v.Tenant, v.Name, v.Query, v.Shared))
	}
	return strings.Join(append(out, list.ShareIn...), " ")
}

// Views are a person's own, and not even a platform administrator is shown another's; shared ones are everybody's
// in the tenant and take a right.
func TestViewsAreTheUsersOwnAndThoseThatAreShared(t *testing.T) {
	h := newHarness(t)
	h.api.grant("alice", "list acme-system", "share/savedviews acme-system")
	path := func(name, more string) string { return wire.ViewsPath + "/" + url.PathEscape(name) + "?" + more }
	h.want(200, "carol", "PUT", path("Läden 50 %", ""), `{"query":"kind=store","columns":["name","label.tier"],"sort":"-score"}`)
	h.want(200, "carol", "PUT", path("Läden 50 %", ""), `{"query":"kind=kiosk"}`)
	h.want(200, "alice", "PUT", path("mine", ""), `{"query":"score<60"}`)
	h.want(200, "alice", "PUT", path("all", "shared=true"), `{"group":"region"}`)
	// Nobody replaces one without meaning to: not by what is new, also if it is somebody else's shared one.
	var taken wire.Problem
	h.want(409, "alice", "PUT", path("all", "shared=true&new=true"), `{"query":"score<1"}`).json(t, &taken)
	if len(taken.Errors) != 1 || taken.Errors[0].Field != "name" {
		t.Errorf("a name that is taken: %+v", taken)
	}
	h.want(200, "both", "PUT", path("elsewhere", "tenant=globex"), `{}`)
	h.want(403, "carol", "PUT", path("all", "shared=true"), `{}`)
	h.want(403, "carol", "DELETE", path("all", "shared=true"), "")
	h.want(403, "carol", "PUT", path("x", "tenant=globex"), `{}`)
	h.want(403, "nobody", "GET", wire.ViewsPath, "")
	for user, want := range map[string]string{
		"carol": "acme/Läden 50 %:kind=kiosk:false acme/all::true", "alice": "acme/all::true acme/mine:score<60:false acme",
		"both": "acme/all::true globex/elsewhere::false", "bob": "", "root": "acme/all::true acme globex",
	} {
		if got := h.viewsOf(t, user, ""); got != want {
			t.Errorf("%s sees %q, want %q", user, got, want)
		}
	}
	if got := h.viewsOf(t, "both", "acme"); got != "acme/all::true" {
		t.Errorf("in acme: %q", got)
	}
	h.want(400, "both", "PUT", path("x", ""), `{}`) // which tenant's?
	h.want(404, "carol", "DELETE", path("mine", ""), "")
	h.want(204, "carol", "DELETE", path("Läden 50 %", ""), "")
	h.want(204, "alice", "DELETE", path("all", "shared=true"), "")
	if got := h.viewsOf(t, "carol", ""); got != "" {
		t.Errorf("carol still sees %q", got)
	}
}

func TestViewsAreBoundedAndSaySoByField(t *testing.T) {
	h := newHarness(t)
	for body, field := range map[string]string{
		`{"query":"score<"}`: "query", `{"sort":"a b"}`: "sort", `{"columns":["(x)"]}`: "columns[0]", `{"group":"version."}`: "group", `{"nonsense":1}`: "body", `{"query":7}`: "query",
		`{"query":"` + strings.Repeat("x", 2001) + `"}`: "query", `{"columns":[` + strings.Repeat(`"name",`, 100) + `"name"]}`: "columns",
	} {
		var p wire.Problem
		h.want(400, "carol", "PUT", wire.ViewsPath+"/x", body).json(t, &p)
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%.60s: %+v, want an error of %s", body, p.Errors, field)
		}
	}
	for _, name := range []string{"a%2Fb", "%20", strings.Repeat("x", 61), "%E2%80%AE", "%00", "%FF"} {
		var p wire.Problem
		h.want(400, "carol", "PUT", wire.ViewsPath+"/"+name, `{}`).json(t, &p)
		if len(p.Errors) != 1 || p.Errors[0].Field != "name" {
			t.Errorf("%s: %+v", name, p.Errors)
		}
	}
	for i := range maxViews {
		h.want(200, "carol", "PUT", fmt.Sprintf("%s/v%d", wire.ViewsPath, i), `{}`)
	}
	h.want(409, "carol", "PUT", wire.ViewsPath+"/one-more", `{}`)
	h.want(200, "carol", "PUT", wire.ViewsPath+"/v7", `{"query":"score<5"}`)
}
