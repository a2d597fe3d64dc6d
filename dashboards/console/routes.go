package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/util/validation"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

const (
	apiPrefix         = "/api/"
	pathAlertState    = "/api/v1/alerts/state"
	pathAlertGroups   = "/api/v1/alerts/groups"
	pathNotifications = "/api/v1/alerts/notifications"
	// pathGatesByName is a rollout's without its namespace.
	pathGatesByName   = "/api/v1/rollouts/{rollout}/gates"
	pathRolloutStream = "/api/v1/rollouts/stream"
)

// pathsWithin are those that another one's pattern matches too.
var pathsWithin = []string{pathAlertState, pathAlertGroups, pathNotifications, pathGatesByName, pathRolloutStream}

// route is one operation of the API. Its parameters are checked before the handler
// runs; the OpenAPI document has one operation for each, which a test verifies.
type route struct {
	method, path string
	doing        string // what goes wrong when it fails, for problems
	params       []param
	many         []string // of params, those that may be repeated
	form         bool     // parameters may come in a form body too
	open         bool     // no authentication
	anyParams    bool     // others than params are ignored instead of refused
	stream       bool
	body         int64 // most bytes of it; 0: maxBodyBytes
	handle       func(http.ResponseWriter, *call) error
}

// call is a request that passed the checks of its route.
type call struct {
	*http.Request
	id   identity
	cred credential
	q    url.Values // checked parameters, only those that are set
}

func (c *Console) apiRoutes() []route {
	const (
		site    = "/api/v1/sites/{site}"
		pending = "/api/v1/registrations"
		health  = "/api/v1/health"
		logs    = "/api/v1/logs"
		alerts  = "/api/v1/alerts"
		virtual = "/api/v1/virtualsites/{namespace}/{virtualSite}"
		windows = "/maintenance/windows"
		vk8s    = "/api/v1/vk8s"
		one     = vk8s + "/{namespace}/{vk8s}"
		item    = one + "/workloads/{kind}/{workload}"
		pod     = one + "/pods/{pod}"
		roll    = "/api/v1/rollouts"
		rollout = roll + "/{namespace}/{rollout}"
	)
	return []route{
		{method: "GET", path: "/api/v1/openapi.json", doing: "read the API's description", open: true, handle: c.getOpenAPI},

		{method: "POST", path: "/api/v1/session", doing: "log in", open: true, handle: c.postSession},
		{method: "GET", path: "/api/v1/session", doing: "read the session", handle: c.getSession},
		{method: "DELETE", path: "/api/v1/session", doing: "log out", open: true, handle: c.deleteSession},

		{method: "GET", path: "/api/v1/rights", doing: "read what you may do", handle: c.getRights},
		{method: "GET", path: "/api/v1/login", doing: "read how to log in", open: true, handle: c.getLogin},
		{method: "GET", path: "/api/v1/tenants", doing: "list the tenants", params: oneTenant, handle: c.getTenants},
		{method: "GET", path: "/api/v1/kubernetes", doing: "read where the Kubernetes API is", handle: c.getKubernetes},
		{method: "GET", path: pathOIDC, doing: "log in", params: []param{{"return", text(2048)}}, open: true, handle: c.beginOIDC},
		{method: "GET", path: pathOIDCCallback, doing: "log in", params: oidcAnswer, open: true, anyParams: true, handle: c.finishOIDC},

		{method: "GET", path: wire.SitesPath, doing: "list the sites", params: sitePage, handle: c.proxyHealth},
		{method: "GET", path: wire.SiteFieldsPath, doing: "read what sites can be asked for by", params: oneTenant, handle: c.proxyHealth},
		{method: "GET", path: wire.SiteMapPath, doing: "read the map of sites", params: siteMap, handle: c.proxyHealth},
		{method: "GET", path: wire.SiteDistributionsPath, doing: "read how numbers spread over sites", params: siteDistributions, handle: c.proxyHealth},
		{method: "GET", path: wire.LinksPath, doing: "list the links", params: linkList, handle: c.proxyHealth},
		{method: "GET", path: wire.ViewsPath, doing: "list the saved views", params: oneTenant, handle: c.listViews},
		{method: "PUT", path: wire.ViewsPath + "/{view}", doing: "save the view", params: savedView, handle: c.putView},
		{method: "DELETE", path: wire.ViewsPath + "/{view}", doing: "delete the view", params: oneView, handle: c.deleteView},
		{method: "POST", path: pathChangeSites, doing: "change the sites", handle: c.changeSites},
		{method: "GET", path: site, doing: "read the site", params: oneTenant, handle: c.getSite},
		{method: "PUT", path: site + "/maintenance", doing: "set maintenance", params: oneTenant, handle: c.putMaintenance},
		{method: "DELETE", path: site + "/maintenance", doing: "end maintenance", params: oneTenant, handle: c.deleteMaintenance},
		{method: "POST", path: site + "/reset", doing: "have the site reset", params: oneTenant, handle: c.askReset},
		{method: "DELETE", path: site + "/reset", doing: "take back the reset of the site", params: oneTenant, handle: c.cancelReset},
		{method: "PUT", path: site + windows + "/{window}", doing: "plan maintenance of the site", params: oneTenant, handle: c.putSiteWindow},
		{method: "DELETE", path: site + windows + "/{window}", doing: "drop planned maintenance of the site", params: oneTenant, handle: c.deleteSiteWindow},
		{method: "GET", path: virtual + windows, doing: "read planned maintenance of the virtual site", params: oneTenant, handle: c.getVirtualSiteWindows},
		{method: "PUT", path: virtual + windows + "/{window}", doing: "plan maintenance of the virtual site", params: oneTenant, handle: c.putVirtualSiteWindow},
		{method: "DELETE", path: virtual + windows + "/{window}", doing: "drop planned maintenance of the virtual site", params: oneTenant, handle: c.deleteVirtualSiteWindow},

		{method: "GET", path: site + "/workloads", doing: "list what runs on the site", params: oneTenant, handle: c.listSiteWorkloads},
		{method: "GET", path: "/api/v1/virtualhosts", doing: "list the virtual hosts", params: oneTenant, handle: c.listVirtualHosts},
		{method: "GET", path: vk8s, doing: "list the virtual Kubernetes", params: oneTenant, handle: c.listVirtualKubernetes},
		{method: "GET", path: one, doing: "read the virtual Kubernetes", params: oneTenant, handle: c.getVirtualKubernetes},
		{method: "GET", path: one + "/kubeconfig", doing: "make the kubeconfig", params: oneTenant, handle: c.getVirtualKubeconfig},
		{method: "POST", path: one + "/apply", doing: "apply the objects", params: oneTenant, body: maxApplyBytes, handle: c.applyObjects},
		{method: "GET", path: one + "/workloads", doing: "list the workloads", params: oneTenant, handle: c.listWorkloads},
		{method: "GET", path: item, doing: "read the workload", params: oneTenant, handle: c.getWorkload},
		{method: "GET", path: item + "/object", doing: "read the object", params: oneTenant, handle: c.getWorkloadObject},
		{method: "GET", path: item + "/pods", doing: "list the workload's pods", params: podList, handle: c.listWorkloadPods},
		{method: "DELETE", path: pod, doing: "delete the pod", params: oneTenant, handle: c.deletePod},
		{method: "GET", path: pod + "/log", doing: "follow the pod's log", params: podLog, stream: true, handle: c.followPodLog},

		{method: "GET", path: roll, doing: "list rollouts", params: rolloutList, many: []string{"phase"}, handle: c.getRollouts},
		{method: "POST", path: roll, doing: "start the rollout", params: oneTenant, body: maxRolloutBytes, handle: c.postRollout},
		{method: "GET", path: pathRolloutStream, doing: "follow rollouts", params: rolloutStream, stream: true, handle: c.streamRollouts},
		{method: "GET", path: roll + "/{rollout}", doing: "read the rollout", params: oneTenant, handle: c.getRollout},
		{method: "GET", path: pathGatesByName, doing: "read the rollout's gates", params: oneTenant, handle: c.getRolloutGates},
		{method: "GET", path: rollout, doing: "read the rollout", params: oneTenant, handle: c.getRollout},
		{method: "GET", path: rollout + "/sites", doing: "list the rollout's sites", params: rolloutSites, many: []string{"step"}, handle: c.getRolloutSites},
		{method: "GET", path: rollout + "/gates", doing: "read the rollout's gates", params: oneTenant, handle: c.getRolloutGates},
		{method: "GET", path: rollout + "/stream", doing: "follow the rollout", params: oneTenant, stream: true, handle: c.streamRollout},
		{method: "DELETE", path: rollout, doing: "delete the rollout", params: oneTenant, handle: c.deleteRollout},
		{method: "POST", path: rollout + "/pause", doing: "pause the rollout", params: oneTenant, handle: c.control(always(map[string]any{"paused": true}))},
		{method: "POST", path: rollout + "/resume", doing: "resume the rollout", params: oneTenant, handle: c.control(goOn)},
		{method: "POST", path: rollout + "/promote", doing: "promote the rollout's wave", params: oneTenant, handle: c.control(readPromote)},
		{method: "POST", path: rollout + "/abort", doing: "abort the rollout", params: oneTenant, handle: c.control(always(map[string]any{"abort": true}))},
		{method: "POST", path: rollout + "/retry", doing: "try failed sites of the rollout again", params: oneTenant, handle: c.control(c.readRetry)},
		{method: "POST", path: "/api/v1/gates:evaluate", doing: "evaluate the gates", params: oneTenant, body: maxGateBytes, handle: c.evaluateGates},
		{method: "GET", path: "/api/v1/gates/{namespace}/{check}", doing: "read the gate check", params: oneTenant, handle: c.getGateCheck},

		{method: "GET", path: pending, doing: "list registrations", params: pagedList, handle: c.listRegistrations},
		{method: "POST", path: pending + "/{site}/approve", doing: "approve the site", params: oneTenant, handle: c.approve},
		{method: "POST", path: pending + "/{site}/reject", doing: "reject the site", params: oneTenant, handle: c.reject},

		{method: "GET", path: health + "/sites", doing: "list the sites' health", params: siteList, handle: c.proxyHealth},
		{method: "GET", path: health + "/sites/{site}", doing: "read the site's health", params: oneTenant, handle: c.proxyHealth},
		{method: "GET", path: health + "/sites/{site}/explain", doing: "read the site's health", params: explained, handle: c.proxyHealth},
		{method: "GET", path: health + "/virtualsites", doing: "list the virtual sites' health", params: pagedList, handle: c.proxyHealth},
		{method: "GET", path: health + "/virtualsites/{virtualSite}", doing: "read the virtual site's health", params: virtualSiteItem, handle: c.proxyHealth},
		{method: "GET", path: health + "/policies", doing: "list the health policies", params: nil, handle: c.proxyHealth},
		{method: "GET", path: health + "/policies/{policy}", doing: "read the health policy", params: oneTenant, handle: c.proxyHealth},
		{method: "POST", path: health + "/try", doing: "try the health policy", params: triedNow, body: maxPolicyBytes, handle: c.tryPolicy},
		{method: "POST", path: health + "/replay", doing: "replay the sites' history", params: replayed, body: maxPolicyBytes, handle: c.tryPolicy},
		{method: "GET", path: health + "/stream", doing: "follow the fleet's health", params: followed, stream: true, handle: c.streamHealth},

		{method: "GET", path: wire.CostPath, doing: "read what sites cost", params: costList, handle: c.proxyHealth},
		{method: "GET", path: wire.CostNamesPath, doing: "read which metrics cost most", params: costNames, handle: c.proxyHealth},

		{method: "GET", path: logs + "/search", doing: "search logs", params: logSearch, many: manyValues, handle: c.searchLogs},
		{method: "GET", path: logs + "/tail", doing: "follow logs", params: logFilters, many: manyValues, stream: true, handle: c.tailLogs},

		{method: "GET", path: wire.TimelinePath, doing: "read the timeline", params: timelineList, many: []string{"site", "virtualSite", "kind"}, handle: c.getTimeline},

		{method: "GET", path: alerts, doing: "list alerts", params: alertList, handle: c.readAlerts},
		{method: "GET", path: pathAlertState, doing: "read the state of alerts", params: alertScope, handle: c.readAlerts},
		{method: "GET", path: pathAlertGroups, doing: "list groups of alerts", params: alertGroups, handle: c.readAlerts},
		{method: "GET", path: pathNotifications, doing: "count notifications", params: notificationCounts, handle: c.readAlerts},
		{method: "POST", path: "/api/v1/alertrules", doing: "make the alert rules", params: oneTenant, handle: c.postAlertRules},
		{method: "GET", path: "/api/v1/alertrules/{rules}", doing: "read the alert rules", params: oneTenant, handle: c.getAlertRules},
		{method: "GET", path: "/api/v1/runbooks/{alert}", doing: "read the runbook", handle: c.getRunbook},
		{method: "GET", path: alerts + "/{fingerprint}", doing: "read the alert", params: oneTenant, handle: c.readAlerts},
		{method: "GET", path: "/api/v1/silences", doing: "list silences", params: silenceList, handle: c.listSilences},
		{method: "POST", path: "/api/v1/silences", doing: "silence alerts", params: oneTenant, handle: c.postSilence},
		{method: "DELETE", path: "/api/v1/silences/{silence}", doing: "end the silence", params: oneTenant, handle: c.deleteSilence},

		{method: "GET", path: "/api/v1/metrics/query", doing: "query metrics", params: instantQuery, handle: c.queryInstant},
		{method: "POST", path: "/api/v1/metrics/query", doing: "query metrics", params: instantQuery, form: true, handle: c.queryInstant},
		{method: "GET", path: "/api/v1/metrics/query_range", doing: "query metrics", params: rangeQuery, handle: c.queryRange},
		{method: "POST", path: "/api/v1/metrics/query_range", doing: "query metrics", params: rangeQuery, form: true, handle: c.queryRange},
		{method: "GET", path: "/api/v1/metrics/names", doing: "list names of metrics", params: nameQuery, handle: c.metricNames},
		{method: "GET", path: "/api/v1/metrics/condition", doing: "take the expression apart", params: conditionQuery, handle: c.metricCondition},
	}
}

// routes builds the handler of everything.
func (c *Console) routes() (http.Handler, error) {
	sameOrigin := http.NewCrossOriginProtection()
	if c.external != nil {
		if err := sameOrigin.AddTrustedOrigin(c.external.String()); err != nil {
			return nil, fmt.Errorf("console: ExternalURL: %w", err)
		}
	}
	compress, err := gzhttp.NewWrapper(gzhttp.MinSize(1024), gzhttp.ContentTypes([]string{"application/json", "text/csv", wire.ProblemMediaType}))
	if err != nil {
		return nil, fmt.Errorf("console: compression: %w", err)
	}

	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, rt := range c.apiRoutes() {
		h := c.recovered(rt.doing, c.operation(rt, sameOrigin))
		if !rt.stream {
			h = compress(h)
		}
		mux.Handle(rt.method+" "+rt.path, c.observed(rt.path, rt.stream, h))
		methods[rt.path] = append(methods[rt.path], rt.method)
	}
	for path, allowed := range methods {
		if slices.Contains(pathsWithin, path) {
			continue // the mux would not know it from GET …/{fingerprint}, whose own does for both
		}
		mux.Handle(path, c.observed(path, false, methodNotAllowed(allowed)))
	}
	mux.Handle(apiPrefix, c.observed(apiPrefix, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notFound("there is no %s; GET /api/v1/openapi.json lists what there is", printable(r.URL.Path)).write(w)
	})))
	mux.Handle("/", c.observed("/", false, c.recovered("serve the web console", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			methodNotAllowed([]string{"GET"}).ServeHTTP(w, r)
			return
		}
		c.static.ServeHTTP(w, r)
	}))))
	return secured(mux), nil
}

func methodNotAllowed(allowed []string) http.Handler {
	if slices.Contains(allowed, "GET") {
		allowed = append(slices.Clone(allowed), "HEAD")
	}
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", list)
		newProblem(http.StatusMethodNotAllowed, wire.ProblemMethod, "%s is not possible here; want %s", printable(r.Method), list).write(w)
	})
}

// operation does for every route what comes before its handler: same origin, body
// cap, time limit, parameters, authentication. Errors become problems.
func (c *Console) operation(rt route, sameOrigin *http.CrossOriginProtection) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := sameOrigin.Check(r); err != nil {
			newProblem(http.StatusForbidden, wire.ProblemCrossOrigin, "a page of another origin sent this request; "+
				"if the console stands behind a proxy, set console.externalURL to what browsers open").write(w)
			return
		}
		if rt.stream && r.ProtoMajor == 2 { // it has no body; what one sends would be kept as long as the stream lasts
			_ = r.Body.Close()
		}
		r.Body = http.MaxBytesReader(w, r.Body, cmp.Or(rt.body, maxBodyBytes))
		if !rt.stream {
			ctx, cancel := context.WithTimeout(r.Context(), c.timing.request)
			defer cancel()
			r = r.WithContext(ctx)
		}
		if err := c.serve(rt, w, r); err != nil {
			c.fail(w, r, asProblem(err, rt.doing))
		}
	})
}

func (c *Console) serve(rt route, w http.ResponseWriter, r *http.Request) error {
	cl := &call{Request: r}
	if !rt.open {
		id, cred, err := c.authenticate(w, r)
		if err != nil {
			return err
		}
		cl.id, cl.cred = id, cred
		c.known(r.RemoteAddr)
		cl.Request = r.WithContext(withIdentity(r.Context(), id))
	}
	in, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("query string", "%s", err)
	}
	if rt.form {
		if err := addForm(in, r); err != nil {
			return err
		}
	}
	if rt.anyParams {
		maps.DeleteFunc(in, func(name string, _ []string) bool {
			return !slices.ContainsFunc(rt.params, func(p param) bool { return p.name == name })
		})
	}
	if cl.q, err = checked(in, rt.params, rt.many...); err != nil {
		return err
	}
	if err := checkPath(r); err != nil {
		return err
	}
	return rt.handle(w, cl)
}

// addForm adds the form in the body to the values of the query string.
func addForm(in url.Values, r *http.Request) error {
	if mediaType(r) != "application/x-www-form-urlencoded" {
		return newProblem(http.StatusUnsupportedMediaType, wire.ProblemMediaKind, "want a body with Content-Type: application/x-www-form-urlencoded")
	}
	if err := r.ParseForm(); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return invalid("body", "%s", err)
	}
	for name, values := range r.PostForm {
		in[name] = append(in[name], values...)
	}
	return nil
}

// checkPath holds names in the path to what Kubernetes allows, so that nothing else
// ever becomes part of a URL of the parts behind us.
func checkPath(r *http.Request) error {
	if name := r.PathValue("site"); name != "" {
		if errs := validation.IsDNS1123Label(name); len(errs) > 0 {
			return invalid("site", "%q: want 1 to 63 lower-case letters, digits or '-', starting and ending with a letter or digit", printable(name))
		}
	}
	if name := r.PathValue("virtualSite"); name != "" {
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
			return invalid("virtualSite", "%q: want lower-case letters, digits, '-' or '.'", printable(name))
		}
	}
	if name := r.PathValue("rollout"); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return invalid("rollout", "%q: want lower-case letters, digits, '-' or '.'", printable(name))
	}
	if name := r.PathValue("check"); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return invalid("check", "%q: want the name of a gate check", printable(name))
	}
	if name := r.PathValue("rules"); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return invalid("rules", "%q: want lower-case letters, digits, '-' or '.'", printable(name))
	}
	if name := r.PathValue("policy"); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return invalid("policy", "%q: want the name of a health policy, or shipped", printable(name))
	}
	for _, label := range []string{"namespace", "vk8s", "window"} {
		if name := r.PathValue(label); name != "" && len(validation.IsDNS1123Label(name)) > 0 {
			return invalid(label, "%q: want 1 to 63 lower-case letters, digits or '-', starting and ending with a letter or digit", printable(name))
		}
	}
	for _, object := range []string{"workload", "pod"} {
		if name := r.PathValue(object); name != "" && len(path.ValidatePathSegmentName(name, false)) > 0 {
			return invalid(object, "%q: want the name of an object", printable(name))
		}
	}
	if kind := r.PathValue("kind"); kind != "" && !kindGroup.MatchString(kind) {
		return invalid("kind", "%q: want KIND.GROUP, such as Deployment.apps", printable(kind))
	}
	if name := r.PathValue("alert"); name != "" && !alertName.MatchString(name) {
		return invalid("alert", "%q: want the name of an alert, such as SiteDown", printable(name))
	}
	if f := r.PathValue("fingerprint"); f != "" && !fingerprint.MatchString(f) {
		return invalid("fingerprint", "%q: want 16 hexadecimal digits", printable(f))
	}
	if id := r.PathValue("silence"); id != "" && !silenceID.MatchString(id) {
		return invalid("silence", "%q: want the id of a silence, as GET /api/v1/silences lists them", printable(id))
	}
	return nil
}

var (
	kindGroup   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`)
	fingerprint = regexp.MustCompile(`^[0-9a-f]{16}$`)
	alertName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)
	silenceID   = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)
)

// fail logs what is ours and tells the user.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.Status >= 500 && p.cause != nil && !errors.Is(p.cause, context.Canceled) {
		level := c.log.Warn
		if p.Status == http.StatusInternalServerError {
			p.Instance = incident()
			level = c.log.Error
		}
		level("request failed", "method", r.Method, "path", r.URL.Path, "code", p.Status, "instance", p.Instance, "err", p.cause)
	}
	p.write(w)
}

func incident() string { return "urn:muster:incident:" + strings.ToLower(rand.Text()) }

// recovered turns a panic into a 500 with a number that the log has too.
func (c *Console) recovered(doing string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			c.met.panics.Inc()
			p := newProblem(http.StatusInternalServerError, wire.ProblemInternal, "%s failed; the log has the cause under this instance", doing)
			p.Instance = incident()
			c.log.Error("panic", "method", r.Method, "path", r.URL.Path, "instance", p.Instance, "err", v, "stack", string(debug.Stack()))
			if rec.code != 0 {
				panic(http.ErrAbortHandler) // the answer has begun: cut it, so that nobody takes it for whole
			}
			p.write(rec)
		}()
		next.ServeHTTP(rec, r)
	})
}

// secured sets the headers that confine what a browser does with our answers.
func secured(next http.Handler) http.Handler {
	const (
		page = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
		data = "default-src 'none'; frame-ancestors 'none'; sandbox"
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		csp := page
		if strings.HasPrefix(r.URL.Path, apiPrefix) {
			csp = data
		}
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()")
		next.ServeHTTP(w, r)
	})
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, code int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n'))
	return nil
}

// siteOf is the site that the path and the parameter tenant name. Without the
// parameter, the name must be unique among the tenants that the user may read.
func (c *Console) siteOf(cl *call) (fleet.SiteID, error) {
	name := cl.PathValue("site")
	set, err := c.access.scope(cl.Context(), cl.id, cl.q.Get("tenant"))
	if err != nil {
		return fleet.SiteID{}, err
	}
	if len(set.names) == 1 {
		return fleet.SiteID{Tenant: set.names[0], Name: name}, nil
	}
	if err := c.pending.ready(); err != nil {
		return fleet.SiteID{}, unavailable(err, "the list of sites is not loaded yet; name the tenant with the parameter tenant")
	}
	tenants := c.pending.tenantsOf(name, set)
	switch len(tenants) {
	case 0:
		return fleet.SiteID{}, notFound("there is no site %q in the tenants that you may read", name)
	case 1:
		return fleet.SiteID{Tenant: tenants[0], Name: name}, nil
	}
	p := newProblem(http.StatusConflict, wire.ProblemAmbiguousSite, "several tenants have a site %q: name one with the parameter tenant", name)
	p.Tenants = tenants
	return fleet.SiteID{}, p
}
