package vk8s_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"muster.dev/muster/control/vk8s"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubeapi"
)

// asTable is what kubectl get asks for.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// TestTablesTellTheFleet: where three pods run on each of 18 sites, kubectl get says that
// 54 of 54 are ready, and the objects themselves say 54.
func TestTablesTellTheFleet(t *testing.T) {
	admin, edits := start(t)
	ctx := t.Context()
	var sites []fleet.SiteID
	for i := range 18 {
		sites = append(sites, fleet.SiteID{Tenant: "vk", Name: fmt.Sprintf("site-%02d", i)})
	}
	names := map[string][]fleet.SiteID{}
	for _, name := range []string{"sum-web", "sum-db", "sum-log", "sum-once", "sum-nightly"} {
		names[name] = sites
	}
	c, _ := summing(t, admin, names, func(name string, site fleet.SiteID) string {
		switch name {
		case "sum-log":
			return `{"desiredNumberScheduled":3,"currentNumberScheduled":3,"updatedNumberScheduled":3,"numberReady":3,"numberAvailable":3,"observedGeneration":1}`
		case "sum-once":
			return `{"succeeded":3,"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Complete","status":"True"}]}`
		case "sum-nightly":
			return fmt.Sprintf(`{"active":[{"kind":"Job","name":"sum-nightly-%s"}],"lastScheduleTime":"2026-01-%[2]sT00:00:00Z","lastSuccessfulTime":"2025-01-%[2]sT00:00:00Z"}`, site.Name, "1"+site.Name[len(site.Name)-1:])
		}
		return `{"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3,"observedGeneration":1}`
	})
	kubeapi.Mount(t).Serve(vk8s.Backend{Virtual: func(ns, name string) (vk8s.Virtual, bool) {
		return vk8s.Virtual{Namespace: ns, Name: name, Tenant: "vk"}, ns == mine
	}, Pods: c.Pods})
	kube := kubernetes.NewForConfigOrDie(through(edits, mine))

	web, three := deployment("sum-web"), int32(3)
	web.Spec.Replicas = &three
	template := web.Spec.Template
	once := *template.DeepCopy()
	once.Spec.RestartPolicy = "Never"
	create := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := kube.AppsV1().Deployments(mine).Create(ctx, web, metav1.CreateOptions{})
	create(err)
	_, err = kube.AppsV1().Deployments(mine).Create(ctx, deployment("sum-nowhere"), metav1.CreateOptions{})
	create(err)
	_, err = kube.AppsV1().StatefulSets(mine).Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "sum-db"}, Spec: appsv1.StatefulSetSpec{Replicas: &three, Selector: web.Spec.Selector, Template: template}}, metav1.CreateOptions{})
	create(err)
	_, err = kube.AppsV1().DaemonSets(mine).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "sum-log"}, Spec: appsv1.DaemonSetSpec{Selector: web.Spec.Selector, Template: template}}, metav1.CreateOptions{})
	create(err)
	_, err = kube.BatchV1().Jobs(mine).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "sum-once"}, Spec: batchv1.JobSpec{Completions: &three, Template: once}}, metav1.CreateOptions{})
	create(err)
	_, err = kube.BatchV1().CronJobs(mine).Create(ctx, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "sum-nightly"}, Spec: batchv1.CronJobSpec{Schedule: "0 3 * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}}}}, metav1.CreateOptions{})
	create(err)

	t.Cleanup(func() {
		for table, client := range map[string]rest.Interface{"deployments": kube.AppsV1().RESTClient(), "statefulsets": kube.AppsV1().RESTClient(), "daemonsets": kube.AppsV1().RESTClient(), "jobs": kube.BatchV1().RESTClient(), "cronjobs": kube.BatchV1().RESTClient()} {
			if err := client.Delete().Namespace(mine).Resource(table).Param("propagationPolicy", "Background").Do(context.Background()).Error(); err != nil {
				t.Error(err)
			}
		}
	})
	for _, of := range []struct {
		client rest.Interface
		table  string
		name   string
		cells  map[string]string
	}{
		{kube.AppsV1().RESTClient(), "deployments", "sum-web", map[string]string{"Ready": "54/54", "Up-to-date": "54", "Available": "54"}},
		{kube.AppsV1().RESTClient(), "deployments", "sum-nowhere", map[string]string{"Ready": "0/1"}},
		{kube.AppsV1().RESTClient(), "statefulsets", "sum-db", map[string]string{"Ready": "54/54"}},
		{kube.AppsV1().RESTClient(), "daemonsets", "sum-log", map[string]string{"Desired": "54", "Current": "54", "Ready": "54", "Up-to-date": "54", "Available": "54"}},
		{kube.BatchV1().RESTClient(), "jobs", "sum-once", map[string]string{"Completions": "54/54", "Status": "Complete"}},
		{kube.BatchV1().RESTClient(), "cronjobs", "sum-nightly", map[string]string{"Active": "18"}},
	} {
		for how, req := range map[string]*rest.Request{
			"list": of.client.Get().Namespace(mine).Resource(of.table),
			"get":  of.client.Get().Namespace(mine).Resource(of.table).Name(of.name),
			"all":  of.client.Get().Namespace(mine).Resource(of.table).Param("includeObject", "Object"),
		} {
			testkit.Eventually(t, how+" "+of.table, func() error {
				b, err := req.SetHeader("Accept", asTable).Do(ctx).Raw()
				if err != nil {
					return err
				}
				var table metav1.Table
				if err := json.Unmarshal(b, &table); err != nil {
					return fmt.Errorf("%.200s: %w", b, err)
				}
				return tells(&table, table.ColumnDefinitions, of.name, of.cells)
			})
		}
		// kubectl get -w, by a word that the API server takes for true.
		stream, err := of.client.Get().Namespace(mine).Resource(of.table).Param("watch", "").SetHeader("Accept", asTable).Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var columns []metav1.TableColumnDefinition
		for events := json.NewDecoder(stream); ; {
			var e struct {
				Type   string
				Object metav1.Table
			}
			if err := events.Decode(&e); err != nil {
				t.Errorf("watch %s: %v", of.table, err)
				break
			}
			if e.Object.ColumnDefinitions != nil {
				columns = e.Object.ColumnDefinitions
			}
			if tells(&e.Object, columns, of.name, of.cells) == nil {
				break
			}
		}
		stream.Close()
	}
	d, err := kube.AppsV1().Deployments(mine).Get(ctx, "sum-web", metav1.GetOptions{})
	if s := d.Status; err != nil || s.Replicas != 3 || s.ReadyReplicas != 3 || s.UpdatedReplicas != 3 || s.AvailableReplicas != 3 || *d.Spec.Replicas != 3 {
		t.Errorf("%+v, %v", d.Status, err)
	}
	cron, err := kube.BatchV1().CronJobs(mine).Get(ctx, "sum-nightly", metav1.GetOptions{})
	if s := cron.Status; err != nil || len(s.Active) != 18 || s.LastScheduleTime.UTC().Format("2006-01-02") != "2026-01-19" || s.LastSuccessfulTime.UTC().Format("2006-01-02") != "2025-01-10" {
		t.Errorf("%+v, %v", cron.Status, err)
	}
	// What has no table is passed on as it is.
	err = kube.AppsV1().RESTClient().Get().Namespace(mine).Resource("deployments").Name("sum-not-there").SetHeader("Accept", asTable).Do(ctx).Error()
	var code int
	yaml, plain := kube.AppsV1().RESTClient().Get().Namespace(mine).Resource("deployments").Name("sum-web").SetHeader("Accept", "application/yaml").Do(ctx).StatusCode(&code).Raw()
	if err == nil || plain != nil || code != http.StatusOK || len(yaml) == 0 {
		t.Errorf("%v, %v", err, plain)
	}
}

// tells compares cells of a row.
func tells(table *metav1.Table, columns []metav1.TableColumnDefinition, name string, cells map[string]string) error {
	for _, row := range table.Rows {
		if row.Cells[0] != name {
			continue
		}
		seen := 0
		for i, column := range columns {
			want, ok := cells[column.Name]
			if !ok {
				continue
			}
			if seen++; fmt.Sprint(row.Cells[i]) != want {
				return fmt.Errorf("%s of %s is %v, want %s", column.Name, name, row.Cells[i], want)
			}
		}
		if seen != len(cells) {
			return fmt.Errorf("%d of the columns %v are there", seen, cells)
		}
		return nil
	}
	return fmt.Errorf("%s is not in the table", name)
}
