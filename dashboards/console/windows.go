package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a window's time zone must be known on machines without the database too
	"unicode/utf8"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const maxWindows = 20 // of one object

// windowView is planned work: once, at start, or again and again, by schedule.
type windowView struct {
	Name     string     `json:"name"`
	Reason   string     `json:"reason"`
	Start    *time.Time `json:"start"`
	Schedule string     `json:"schedule"`
	TimeZone string     `json:"timeZone"`
	Duration string     `json:"duration"`
}

func viewWindows(in []v1alpha1.MaintenanceWindow) []windowView {
	out := make([]windowView, 0, len(in))
	for _, w := range in {
		out = append(out, windowView{w.Name, w.Reason, timeView(w.Start), w.Schedule, w.TimeZone, w.Duration.Duration.String()})
	}
	return out
}

type windowRequest struct {
	Reason   string     `json:"reason"`
	Start    *time.Time `json:"start"`
	Schedule string     `json:"schedule"`
	TimeZone string     `json:"timeZone"`
	Duration string     `json:"duration"`
}

// window returns the API's form of a request, or a problem.
func (r *windowRequest) window(name string, now time.Time) (v1alpha1.MaintenanceWindow, error) {
	var errs []wire.FieldError
	bad := func(field, format string, args ...any) {
		errs = append(errs, wire.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	out := v1alpha1.MaintenanceWindow{Name: name, Reason: strings.TrimSpace(r.Reason), Schedule: strings.TrimSpace(r.Schedule), TimeZone: r.TimeZone}
	if n := utf8.RuneCountInString(out.Reason); n < 1 || n > 200 {
		bad("reason", "want 1 to 200 characters, have %d", n)
	}
	d, err := time.ParseDuration(r.Duration)
	if err != nil || d < time.Minute || d > 168*time.Hour {
		bad("duration", "%q: want 1m to 168h, such as 2h", printable(r.Duration))
	}
	out.Duration = metav1.Duration{Duration: d}
	switch {
	case r.Start != nil && out.Schedule != "":
		bad("schedule", "want either start, for once, or schedule, for again and again")
	case r.Start == nil && out.Schedule == "":
		bad("start", "is missing: want a time, for once, or a schedule, for again and again")
	case r.Start != nil:
		if !r.Start.Add(d).After(now) {
			bad("start", "the window would be over already")
		}
		start := metav1.NewTime(r.Start.UTC())
		out.Start = &start
	default:
		// The parser panics on some forms of TZ=.
		wrong := strings.Contains(out.Schedule, "TZ=")
		if !wrong {
			_, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(out.Schedule)
			wrong = err != nil
		}
		if wrong {
			bad("schedule", "%q: want cron's five fields, such as \"0 2 * * SUN\"", printable(out.Schedule))
		}
	}
	if out.TimeZone != "" {
		if _, err := time.LoadLocation(out.TimeZone); err != nil || out.TimeZone == "Local" || len(out.TimeZone) > 64 {
			bad("timeZone", "%q: want a name such as Europe/Berlin", printable(out.TimeZone))
		}
	}
	if len(errs) > 0 {
		return out, invalidFields(errs)
	}
	return out, nil
}

// windowed is an object that has maintenance windows: a Site or a VirtualSite.
type windowed struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MaintenanceWindows []v1alpha1.MaintenanceWindow `json:"maintenanceWindows"`
	} `json:"spec"`
}

// objectRef names one.
type objectRef struct{ resource, namespace, name string }

func (k *kube) getWindowed(ctx context.Context, ref objectRef) (*windowed, error) {
	raw, err := k.user.Get().Namespace(ref.namespace).Resource(ref.resource).Name(ref.name).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	out := &windowed{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", ref.resource, ref.namespace, ref.name, err)
	}
	return out, nil
}

// editWindows replaces the windows by what change makes of exactly these, as the user
// in ctx, and returns the whole object that results.
func (c *Console) editWindows(ctx context.Context, ref objectRef, change func([]v1alpha1.MaintenanceWindow) ([]v1alpha1.MaintenanceWindow, error)) ([]byte, error) {
	var raw []byte
	// Somebody else may write in between.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := c.kube.getWindowed(ctx, ref)
		if err != nil {
			return err
		}
		windows, err := change(o.Spec.MaintenanceWindows)
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "uid": o.UID},
			"spec":     map[string]any{"maintenanceWindows": windows},
		})
		if err != nil {
			return err
		}
		raw, err = c.kube.user.Patch(types.MergePatchType).Namespace(ref.namespace).Resource(ref.resource).Name(ref.name).
			VersionedParams(&metav1.PatchOptions{FieldManager: fieldManager}, c.kube.params).Body(patch).Do(ctx).Raw()
		return err
	})
	return raw, err
}

// putWindow adds or replaces the window that the path names.
func (c *Console) putWindow(cl *call, ref func(*call) (objectRef, error)) ([]byte, error) {
	var in windowRequest
	if err := readJSON(cl.Request, &in, false); err != nil {
		return nil, err
	}
	w, err := in.window(cl.PathValue("window"), c.now())
	if err != nil {
		return nil, err
	}
	o, err := ref(cl)
	if err != nil {
		return nil, err
	}
	return c.editWindows(cl.Context(), o, func(have []v1alpha1.MaintenanceWindow) ([]v1alpha1.MaintenanceWindow, error) {
		have = slices.Clone(have)
		if i := slices.IndexFunc(have, func(h v1alpha1.MaintenanceWindow) bool { return h.Name == w.Name }); i >= 0 {
			have[i] = w
			return have, nil
		}
		if len(have) >= maxWindows {
			return nil, newProblem(http.StatusConflict, wire.ProblemConflict, "%s has %d maintenance windows already; delete one that is over", o.name, len(have))
		}
		return append(have, w), nil
	})
}

func (c *Console) dropWindow(w http.ResponseWriter, cl *call, ref func(*call) (objectRef, error)) error {
	o, err := ref(cl)
	if err != nil {
		return err
	}
	name := cl.PathValue("window")
	_, err = c.editWindows(cl.Context(), o, func(have []v1alpha1.MaintenanceWindow) ([]v1alpha1.MaintenanceWindow, error) {
		left := slices.DeleteFunc(slices.Clone(have), func(h v1alpha1.MaintenanceWindow) bool { return h.Name == name })
		if len(left) == len(have) {
			return nil, notFound("%s has no maintenance window %q", o.name, name)
		}
		return left, nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *Console) siteRef(cl *call) (objectRef, error) {
	id, err := c.siteOf(cl)
	return objectRef{"sites", fleet.SystemNamespace(id.Tenant), id.Name}, err
}

func (c *Console) putSiteWindow(w http.ResponseWriter, cl *call) error {
	raw, err := c.putWindow(cl, c.siteRef)
	if err != nil {
		return err
	}
	s := &v1alpha1.Site{}
	if err := json.Unmarshal(raw, s); err != nil {
		return fmt.Errorf("read the site: %w", err)
	}
	tenant, _ := fleet.TenantOfSystemNamespace(s.Namespace)
	return writeJSON(w, http.StatusOK, viewSite(tenant, s, c.now()))
}

func (c *Console) deleteSiteWindow(w http.ResponseWriter, cl *call) error {
	return c.dropWindow(w, cl, c.siteRef)
}

// virtualSiteWindows is what a virtual site's members share.
type virtualSiteWindows struct {
	Tenant             string       `json:"tenant"`
	Namespace          string       `json:"namespace"` // as users type it
	Name               string       `json:"name"`
	MaintenanceWindows []windowView `json:"maintenanceWindows"`
}

// virtualSiteTenant is the one tenant in which the path names a virtual site.
func (c *Console) virtualSiteTenant(cl *call) (string, error) {
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return "", err
	}
	if len(set.names) != 1 {
		return "", manyTenants("a virtual site belongs to one tenant", set)
	}
	return set.names[0], nil
}

func (c *Console) virtualSiteRef(cl *call) (objectRef, error) {
	tenant, err := c.virtualSiteTenant(cl)
	return objectRef{"virtualsites", tenant + "-" + cl.PathValue("namespace"), cl.PathValue("virtualSite")}, err
}

func (c *Console) writeVirtualSite(w http.ResponseWriter, cl *call, o *windowed) error {
	tenant, err := c.virtualSiteTenant(cl)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, virtualSiteWindows{tenant, cl.PathValue("namespace"), cl.PathValue("virtualSite"), viewWindows(o.Spec.MaintenanceWindows)})
}

func (c *Console) getVirtualSiteWindows(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualSiteRef(cl)
	if err != nil {
		return err
	}
	o, err := c.kube.getWindowed(cl.Context(), ref)
	if err != nil {
		return err
	}
	return c.writeVirtualSite(w, cl, o)
}

func (c *Console) putVirtualSiteWindow(w http.ResponseWriter, cl *call) error {
	raw, err := c.putWindow(cl, c.virtualSiteRef)
	if err != nil {
		return err
	}
	o := &windowed{}
	if err := json.Unmarshal(raw, o); err != nil {
		return fmt.Errorf("read the virtual site: %w", err)
	}
	return c.writeVirtualSite(w, cl, o)
}

func (c *Console) deleteVirtualSiteWindow(w http.ResponseWriter, cl *call) error {
	return c.dropWindow(w, cl, c.virtualSiteRef)
}
