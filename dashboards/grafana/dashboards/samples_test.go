package dashboards

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const samples = "../../../deploy/samples/grafana/"

// read reads a YAML file, of which every field has to be known.
func read(t *testing.T, file string, out any) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b
}

// dataSource is one of a provisioning file.
type dataSource struct {
	Name           string            `json:"name"`
	UID            string            `json:"uid"`
	Type           string            `json:"type"`
	Access         string            `json:"access"`
	URL            string            `json:"url"`
	JSONData       map[string]any    `json:"jsonData"`
	SecureJSONData map[string]string `json:"secureJsonData"`
}

// providers is a provisioning file of dashboards.
type providers struct {
	APIVersion int `json:"apiVersion"`
	Providers  []struct {
		Name           string            `json:"name"`
		Folder         string            `json:"folder"`
		Type           string            `json:"type"`
		AllowUIUpdates bool              `json:"allowUiUpdates"`
		Options        map[string]string `json:"options"`
	} `json:"providers"`
}

func provisioned(t *testing.T) []dataSource {
	var sources struct {
		APIVersion  int          `json:"apiVersion"`
		Datasources []dataSource `json:"datasources"`
	}
	read(t, samples+"provisioning/datasources/muster.yaml", &sources)
	if sources.APIVersion != 1 {
		t.Errorf("version %d", sources.APIVersion)
	}
	return sources.Datasources
}

// The samples provision what the dashboards ask for. That the fleet answers these very data
// sources, the plugin's tests and the e2e see.
func TestSamples(t *testing.T) {
	reader := "$__file{/etc/muster/reader/"
	tls := map[string]string{"tlsCACert": reader + "ca-certs.pem}", "tlsClientCert": reader + "tls.pem}", "tlsClientKey": reader + "tls.pem}"}
	cortexTLS := maps.Clone(tls)
	cortexTLS["httpHeaderValue1"] = "$MUSTER_TENANT"
	prometheus := func(kind string, more map[string]any) map[string]any {
		out := map[string]any{"httpMethod": "POST", "timeInterval": "15s", "prometheusType": kind, "manageAlerts": false, "tlsAuth": true, "tlsAuthWithCACert": true}
		maps.Copy(out, more)
		return out
	}
	want := []dataSource{
		{"Muster", "muster", PluginID, "proxy", "$MUSTER_CONSOLE", map[string]any{"tenant": "$MUSTER_TENANT", "oauthPassThru": false}, map[string]string{"token": "$MUSTER_TOKEN"}},
		{"Muster metrics", "muster-metrics", "prometheus", "proxy", "$MUSTER_CORTEX/prometheus", prometheus("Cortex", map[string]any{"httpHeaderName1": "X-Scope-OrgID"}), cortexTLS},
		{"Muster regional", "muster-regional", "prometheus", "proxy", "$MUSTER_REGIONAL/local", prometheus("Prometheus", nil), tls},
	}
	if got := provisioned(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	// Each kind of data source that the dashboards have a variable for is there.
	have := map[string]bool{}
	for _, s := range want {
		have[s.Type] = true
	}
	for _, d := range all(t) {
		var doc struct {
			Templating struct {
				List []struct {
					Name, Type string
					Query      any
				}
			}
		}
		if err := json.Unmarshal(d.JSON, &doc); err != nil {
			t.Fatal(err)
		}
		asks := 0
		for _, v := range doc.Templating.List {
			if v.Type == "datasource" {
				asks++
				if kind, _ := v.Query.(string); !have[kind] {
					t.Errorf("%s asks with %s for a data source of the type %v, which is not provisioned", d.UID, v.Name, v.Query)
				}
			}
		}
		if asks == 0 {
			t.Errorf("%s asks for no data source", d.UID)
		}
	}
	var plugin struct{ ID string }
	b, err := os.ReadFile("../plugin/src/plugin.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &plugin); err != nil || plugin.ID != PluginID {
		t.Errorf("the plugin is %q, %v", plugin.ID, err)
	}
}

// rendered is what of Grafana's chart our values change.
type rendered struct {
	config map[string]string // the chart's own ConfigMap
	pod    corev1.PodSpec
	in     corev1.Container // Grafana
}

// render renders Grafana's own chart with the values of the samples.
func render(t *testing.T, values map[string]any) rendered {
	t.Helper()
	c, err := loader.Load("testdata/grafana")
	if err != nil {
		t.Fatal(err)
	}
	for name := range values {
		if _, ok := c.Values[name]; !ok { // which Helm says nothing of
			t.Errorf("Grafana's chart has no value %s", name)
		}
	}
	with, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "grafana", Namespace: "monitoring", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, with)
	if err != nil {
		t.Fatal(err)
	}
	var out rendered
	for _, file := range files {
		for _, doc := range releaseutil.SplitManifests(file) {
			var is metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(doc), &is); err != nil {
				continue // notes
			}
			switch is.Kind + "/" + is.Name {
			case "ConfigMap/grafana":
				var m corev1.ConfigMap
				if err := yaml.UnmarshalStrict([]byte(doc), &m); err != nil {
					t.Fatal(err)
				}
				out.config = m.Data
			case "Deployment/grafana":
				var d appsv1.Deployment
				if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
					t.Fatal(err)
				}
				out.pod = d.Spec.Template.Spec
			}
		}
	}
	for _, c := range out.pod.Containers {
		if c.Name == "grafana" {
			out.in = c
		}
	}
	if out.config == nil || out.in.Name == "" {
		t.Fatal("the chart makes no ConfigMap and Deployment of Grafana")
	}
	return out
}

// source is the ConfigMap or Secret whose files a path of Grafana's container has.
func (r rendered) source(file string) string {
	best, from := "", ""
	for _, m := range r.in.VolumeMounts {
		if (file == m.MountPath || strings.HasPrefix(file, m.MountPath+"/")) && len(m.MountPath) > len(best) {
			best, from = m.MountPath, m.Name
		}
	}
	for _, v := range r.pod.Volumes {
		switch {
		case v.Name != from:
		case v.ConfigMap != nil:
			return "configmap " + v.ConfigMap.Name
		case v.Secret != nil:
			return "secret " + v.Secret.SecretName
		}
	}
	return "nothing at " + best
}

var (
	made     = regexp.MustCompile(`kubectl create (secret|configmap)(?: generic)? (\S+) --from-(?:file|literal)=(\S+)`)
	fromFile = regexp.MustCompile(`\$__file{(.+)}`)
)

// With the values for Grafana's own chart a pod has all that the provisioned data sources and
// dashboards need, and nothing else is to be made than what the comment at their top makes.
func TestHelmValues(t *testing.T) {
	var values map[string]any
	text := read(t, samples+"values.yaml", &values)
	r := render(t, values)

	commands := map[string]string{}
	for _, m := range made.FindAllStringSubmatch(string(text), -1) {
		commands[m[1]+" "+m[2]] = m[3]
	}
	const dashboards = "/var/lib/grafana/dashboards/muster"
	for file, want := range map[string]string{
		"/etc/grafana/provisioning/datasources/muster.yaml": "deploy/samples/grafana/provisioning/datasources",
		"/etc/muster/reader":              "DATA-DIR/control/identities/reader",
		dashboards + "/muster-fleet.json": "dashboards/grafana/dashboards",
	} {
		if got := commands[r.source(file)]; got != want {
			t.Errorf("%s is from %s, which is made from %q, want %s", file, r.source(file), got, want)
		}
	}

	env := map[string]string{}
	for _, e := range r.in.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = e.Value
		case from.SecretKeyRef != nil:
			literal := commands["secret "+from.SecretKeyRef.Name]
			if name, _, ok := strings.Cut(literal, "="); strings.HasPrefix(e.Name, "MUSTER_") && (!ok || name != from.SecretKeyRef.Key) {
				t.Errorf("%s is the key %s of the secret %s, which is made with %q", e.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Name, literal)
			}
			env[e.Name] = "secret"
		case from.ConfigMapKeyRef != nil:
			env[e.Name] = r.config[from.ConfigMapKeyRef.Key]
		}
	}
	unused := map[string]bool{}
	for name := range env {
		if strings.HasPrefix(name, "MUSTER_") {
			unused[name] = true
		}
	}
	expand := func(s, what string) string {
		return os.Expand(fromFile.ReplaceAllStringFunc(s, func(f string) string {
			file := fromFile.FindStringSubmatch(f)[1]
			if r.source(file) != "secret muster-reader" {
				t.Errorf("%s: %s is from %s", what, file, r.source(file))
			}
			return "the content of " + file
		}), func(name string) string {
			if env[name] == "" {
				t.Errorf("%s: the pod has no %s", what, name)
			}
			delete(unused, name)
			return env[name]
		})
	}
	for _, s := range provisioned(t) {
		if url := expand(s.URL, s.Name); !strings.HasPrefix(url, "https://") {
			t.Errorf("%s: the address %s", s.Name, url)
		}
		for k, v := range s.SecureJSONData {
			expand(v, s.Name+"."+k)
		}
		for k, v := range s.JSONData {
			if text, ok := v.(string); ok {
				expand(text, s.Name+"."+k)
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("no data source reads %v", slices.Sorted(maps.Keys(unused)))
	}

	r.hasPlugin(t, env)
	r.hasDashboards(t, dashboards)
}

// hasPlugin: the zip is installed as Grafana's chart has it, ID@VERSION@URL, and may be loaded.
func (r rendered) hasPlugin(t *testing.T, env map[string]string) {
	t.Helper()
	var pkg struct{ Version string }
	b, err := os.ReadFile("../plugin/package.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &pkg); err != nil {
		t.Fatal(err)
	}
	if got, want := env["GF_PLUGINS_PREINSTALL_SYNC"], PluginID+"@"+pkg.Version+"@https://files.example.com/muster-grafana.zip"; got != want {
		t.Errorf("Grafana installs %q, want %q", got, want)
	}
	if b, err := os.ReadFile("../../../Makefile"); err != nil || !strings.Contains(string(b), "muster-grafana.zip") {
		t.Errorf("make grafana-plugin makes another zip: %v", err)
	}
	if _, section, _ := strings.Cut(r.config["grafana.ini"], "[plugins]\n"); strings.TrimSpace(strings.SplitN(section, "\n", 2)[0]) != "allow_loading_unsigned_plugins = "+PluginID {
		t.Errorf("grafana.ini:\n%s", r.config["grafana.ini"])
	}
}

// hasDashboards: the provider is that of a Grafana without Kubernetes.
func (r rendered) hasDashboards(t *testing.T, dir string) {
	t.Helper()
	var plain, chart providers
	read(t, samples+"provisioning/dashboards/muster.yaml", &plain)
	if err := yaml.UnmarshalStrict([]byte(r.config["muster.yaml"]), &chart); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(chart, plain) || len(plain.Providers) != 1 || plain.APIVersion != 1 {
		t.Errorf("the chart's provider is %+v, that of the samples %+v", chart, plain)
	}
	if p := plain.Providers[0]; p.Type != "file" || p.Options["path"] != dir || p.AllowUIUpdates {
		t.Errorf("%+v", p)
	}
	if at := "/etc/grafana/provisioning/dashboards/muster.yaml"; r.source(at) != "configmap grafana" || !slices.ContainsFunc(r.in.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == at && m.SubPath == path.Base(at) }) {
		t.Errorf("%s is from %s", at, r.source(at))
	}
}
