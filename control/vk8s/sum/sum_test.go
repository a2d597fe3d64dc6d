package sum

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
	"muster.dev/muster/internal/workload"
)

func id(name string) fleet.SiteID { return fleet.SiteID{Tenant: "demo", Name: name} }

// site is one in a test: what it has, of what it should have ("new"), and its pods.
type site struct {
	name, has      string
	state          workload.State
	replicas, live int
	offline        bool
	silent         bool
	held           bool // by a rollout, at "kept", which is what it should have
}

func world(sites ...site) (Placement, map[fleet.SiteID]*wire.WorkloadStatus, func(fleet.SiteID) bool) {
	p := Placement{Version: 7, Digests: map[fleet.SiteID]string{}, Held: map[fleet.SiteID]bool{}}
	states, offline := map[fleet.SiteID]*wire.WorkloadStatus{}, map[fleet.SiteID]bool{}
	for _, s := range sites {
		p.Digests[id(s.name)] = "new"
		offline[id(s.name)] = s.offline
		if s.silent {
			continue
		}
		wanted := "new"
		if s.held {
			p.Held[id(s.name)], p.Digests[id(s.name)], wanted = true, "kept", "kept"
		}
		states[id(s.name)] = &wire.WorkloadStatus{Digest: s.has, Wanted: wanted, State: string(s.state), Reason: "R" + string(s.state),
			Status: fmt.Appendf(nil, `{"replicas":%d,"updatedReplicas":%[1]d,"readyReplicas":%d,"availableReplicas":%[2]d,"desiredNumberScheduled":%[1]d,"updatedNumberScheduled":%[1]d,"numberReady":%[2]d,"numberAvailable":%[2]d}`, s.replicas, s.live)}
	}
	return p, states, func(id fleet.SiteID) bool { return !offline[id] }
}

// rolledOut is what kubectl rollout status asks of a Deployment, in its order.
func rolledOut(d *appsv1.Deployment) string {
	s := d.Status
	for _, c := range s.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" && d.Generation <= s.ObservedGeneration {
			return "failed"
		}
	}
	switch {
	case d.Generation > s.ObservedGeneration:
		return "unseen"
	case s.UpdatedReplicas < *d.Spec.Replicas, s.Replicas > s.UpdatedReplicas, s.AvailableReplicas < s.UpdatedReplicas:
		return "waits"
	}
	return "done"
}

// current is what kstatus asks of a Deployment, by which Helm 4, Flux and kpt wait.
func current(d *appsv1.Deployment) bool {
	s, spec := d.Status, *d.Spec.Replicas
	available := slices.ContainsFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
	})
	return d.Generation == s.ObservedGeneration && s.Replicas == spec && s.UpdatedReplicas >= spec && s.AvailableReplicas >= s.UpdatedReplicas && s.ReadyReplicas >= spec && available
}

// upToDate is what kubectl rollout status, Helm 3 and kstatus together ask of a StatefulSet.
func upToDate(d *appsv1.StatefulSet) bool {
	s, spec := d.Status, *d.Spec.Replicas
	return d.Generation == s.ObservedGeneration && s.ReadyReplicas == spec && s.UpdatedReplicas >= spec && s.Replicas == spec && s.CurrentReplicas >= spec && s.CurrentRevision == s.UpdateRevision
}

func TestARolloutIsDoneWhenItIsOnAllSites(t *testing.T) {
	three := int32(3)
	good := site{name: "paris", has: "new", state: workload.Ready, replicas: 3, live: 3}
	kept := site{name: "rome", has: "kept", state: workload.Ready, replicas: 3, live: 3, held: true}
	off := kept
	off.offline = true
	for name, c := range map[string]struct {
		sites   []site
		ignore  bool
		over    bool // the rollout that holds them has ended
		version uint64
		want    string
	}{
		"all sites have it":                                          {sites: []site{good, {name: "rome", has: "new", state: workload.Ready, replicas: 3, live: 3}}, want: "done"},
		"one has the old one, all of its pods live":                  {sites: []site{good, {name: "rome", has: "old", state: workload.Ready, replicas: 3, live: 3}}, want: "unseen"},
		"one has said nothing":                                       {sites: []site{good, {name: "rome", silent: true}}, want: "unseen"},
		"one has it, without pods yet":                               {sites: []site{good, {name: "rome", has: "new", state: workload.Progressing}}, want: "waits"},
		"one has it, not all pods live":                              {sites: []site{good, {name: "rome", has: "new", state: workload.Progressing, replicas: 3, live: 2}}, want: "waits"},
		"one is offline with the old one":                            {sites: []site{good, {name: "rome", has: "old", state: workload.Ready, replicas: 3, live: 3, offline: true}}, want: "waits"},
		"one is offline, which is ignored":                           {sites: []site{good, {name: "rome", has: "old", state: workload.Ready, replicas: 3, live: 3, offline: true}}, ignore: true, want: "done"},
		"one failed":                                                 {sites: []site{good, {name: "rome", has: "old", state: workload.Failed, replicas: 3, live: 3}}, want: "failed"},
		"one failed, another goes on":                                {sites: []site{good, {name: "rome", has: "old", state: workload.Failed}, {name: "oslo", has: "new", state: workload.Progressing}}, want: "waits"},
		"the change is not rendered yet":                             {sites: []site{good}, version: 8, want: "unseen"},
		"a rollout has not come to one":                              {sites: []site{good, kept}, want: "waits"},
		"a rollout has come to none":                                 {sites: []site{kept}, want: "waits"},
		"a rollout's first one failed":                               {sites: []site{kept, {name: "oslo", has: "new", state: workload.Failed, replicas: 3}}, want: "waits"},
		"a rollout put all back":                                     {sites: []site{kept}, over: true, want: "failed"},
		"a rollout leaves one out that is offline, which is ignored": {sites: []site{good, off}, ignore: true, want: "done"},
		"no sites": {want: "waits"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 4}, Spec: appsv1.DeploymentSpec{Replicas: &three}, Status: appsv1.DeploymentStatus{ObservedGeneration: 3}}
			p, states, online := world(c.sites...)
			p.Over = c.over
			all, ignored := places(p, states, online, c.ignore)
			d.Status = Deployment(d, max(c.version, 7), p, all, ignored, metav1.Now())
			if got := rolledOut(d); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, d.Status)
			}
			if current(d) != (c.want == "done") {
				t.Errorf("to kstatus it is current or not otherwise than to kubectl: %+v", d.Status)
			}
			set := &appsv1.StatefulSet{ObjectMeta: d.ObjectMeta, Spec: appsv1.StatefulSetSpec{Replicas: &three}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 3}}
			set.Status = StatefulSet(set, max(c.version, 7), p, all, ignored, metav1.Now())
			if upToDate(set) != (c.want == "done") {
				t.Errorf("the StatefulSet: %+v", set.Status)
			}
			daemons := DaemonSet(&appsv1.DaemonSet{ObjectMeta: d.ObjectMeta}, max(c.version, 7), p, all, ignored, metav1.Now())
			if len(p.Held) > len(ignored) && daemons.UpdatedNumberScheduled >= daemons.DesiredNumberScheduled {
				t.Errorf("the DaemonSet: %+v", daemons)
			}
			if least := fewest(all, three); (least == three) != (c.want == "done") && c.want != "unseen" {
				t.Errorf("Helm 3 finds %d of the newest ReplicaSet ready", least)
			}
			// kubectl looks at no more where there is a partition, and 0 is one.
			if s := set.Status; c.want != "done" && s.ObservedGeneration == set.Generation && s.ReadyReplicas >= three && s.UpdatedReplicas >= three {
				t.Errorf("to kubectl rollout status the StatefulSet is done: %+v", s)
			}
		})
	}
}

func TestConditionsSayWhichSites(t *testing.T) {
	three := int32(3)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: appsv1.DeploymentSpec{Replicas: &three}}
	p, states, online := world(site{name: "paris", has: "new", state: workload.Ready, replicas: 3, live: 3}, site{name: "rome", has: "new", state: workload.Failed}, site{name: "oslo", has: "new", state: workload.Failed}, site{name: "bern", silent: true, offline: true})
	all, ignored := places(p, states, online, false)
	first := metav1.Unix(1000, 0)
	d.Status = Deployment(d, 1, p, all, ignored, first)
	got := map[string]string{}
	for _, c := range d.Status.Conditions {
		got[string(c.Type)] = string(c.Status) + " " + c.Message
	}
	for kind, want := range map[string]string{"SitesReady": "False 1 of 4 sites are ready: RFailed on 2 sites such as oslo; SiteOffline on bern", "SitesOnline": "False 1 sites are not connected; they get it when they are back",
		"SitesInSync": "False 1 of 4 sites have not what they should have"} {
		if got[kind] != want {
			t.Errorf("%s: %q, want %q", kind, got[kind], want)
		}
	}
	// What somebody changed on a site is said before what is still to come, with the fields.
	states[id("oslo")].Drifted, states[id("oslo")].Changed = true, []string{"spec.replicas"}
	inSync := func() string {
		all, ignored = places(p, states, online, false)
		i := slices.IndexFunc(conditionsOf(judge(all, ignored)), func(c condition) bool { return c.kind == "SitesInSync" })
		c := conditionsOf(judge(all, ignored))[i]
		return string(c.status) + " " + c.reason + " " + c.message
	}
	if got := inSync(); got != "False Drifted somebody changed it on 1 of 4 sites, such as on oslo: spec.replicas" {
		t.Error(got)
	}
	states[id("oslo")].Drifted, states[id("oslo")].Changed = false, nil
	states[id("bern")] = &wire.WorkloadStatus{Digest: "new", Wanted: "new", State: string(workload.Ready)}
	if got := inSync(); got != "True SitesInSync all sites have it as it is here" {
		t.Error(got)
	}
	delete(states, id("bern"))
	all, ignored = places(p, states, online, false)
	if again := Deployment(d, 1, p, all, ignored, metav1.Unix(2000, 0)); fmt.Sprint(again) != fmt.Sprint(d.Status) {
		t.Errorf("it is written again though nothing changed:\n%+v\n%+v", d.Status, again)
	}
}

// What sites say of their pods may be anything, and one that lies must not keep the sum of the
// others from being written: the API server refuses a status in which these don't hold.
func FuzzSumsCanBeWritten(f *testing.F) {
	f.Add(`{"replicas":3,"readyReplicas":0,"availableReplicas":3,"updatedReplicas":9}`, int32(3))
	f.Add(`{"replicas":-1,"readyReplicas":2147483647,"availableReplicas":2147483647,"updatedReplicas":2147483647}`, int32(2))
	f.Add(`{"desiredNumberScheduled":1,"numberReady":5,"numberAvailable":7,"updatedNumberScheduled":9,"numberUnavailable":-4}`, int32(1))
	f.Fuzz(func(t *testing.T, lie string, want int32) {
		if want < 0 || want > 1000 {
			return
		}
		p, states, online := world(site{name: "paris", has: "new", state: workload.Progressing, replicas: 3, live: 2}, site{name: "rome", has: "new", state: workload.Progressing}, site{name: "oslo", has: "new", state: workload.Ready, replicas: 3, live: 3})
		states[id("rome")].Status = []byte(lie)
		all, _ := places(p, states, online, false)
		within := func(kind string, n ...int32) {
			t.Helper()
			for i := range n {
				if n[i] < 0 || i > 0 && n[i] > n[i-1] {
					t.Errorf("%s: %v, of %s", kind, n, lie)
				}
			}
		}
		d := Deployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &want}}, 7, p, all, nil, metav1.Now())
		within("a Deployment's", d.Replicas, d.ReadyReplicas, d.AvailableReplicas)
		within("a Deployment's", d.Replicas, d.UpdatedReplicas)
		within("a Deployment's", d.UnavailableReplicas)
		s := StatefulSet(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &want}}, 7, p, all, nil, metav1.Now())
		within("a StatefulSet's", s.Replicas, s.ReadyReplicas, s.AvailableReplicas)
		within("a StatefulSet's", s.Replicas, s.UpdatedReplicas)
		ds := DaemonSet(&appsv1.DaemonSet{}, 7, p, all, nil, metav1.Now())
		within("a DaemonSet's", ds.DesiredNumberScheduled, ds.CurrentNumberScheduled)
		within("a DaemonSet's", ds.DesiredNumberScheduled, ds.NumberReady, ds.NumberAvailable)
		within("a DaemonSet's", ds.NumberUnavailable)
	})
}

func TestOtherKinds(t *testing.T) {
	three := int32(3)
	p, states, online := world(site{name: "paris", has: "new", state: workload.Ready, replicas: 3, live: 3}, site{name: "rome", has: "new", state: workload.Progressing, replicas: 3, live: 1})
	all, _ := places(p, states, online, false)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", Generation: 2}, Spec: appsv1.StatefulSetSpec{Replicas: &three}}
	if s := StatefulSet(set, 7, p, all, nil, metav1.Now()); s.ReadyReplicas != 2 || s.Replicas != 3 || s.ObservedGeneration != 2 || s.UpdateRevision == s.CurrentRevision {
		t.Errorf("StatefulSet: %+v", s)
	}
	if s := StatefulSet(set, 7, p, all[:1], nil, metav1.Now()); s.UpdateRevision != s.CurrentRevision {
		t.Errorf("StatefulSet: %+v", s)
	}
	if s := DaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}, 7, p, all, nil, metav1.Now()); s.DesiredNumberScheduled != 6 || s.NumberAvailable != 4 || s.NumberUnavailable != 2 || s.ObservedGeneration != 2 {
		t.Errorf("DaemonSet: %+v", s)
	}
	for done, want := range map[bool]batchv1.JobConditionType{true: batchv1.JobComplete, false: batchv1.JobFailed} {
		other := batchv1.JobFailed
		if done {
			other = batchv1.JobComplete
		}
		states[id("paris")].Status = []byte(`{"succeeded":1,"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"Complete","status":"True"}]}`)
		states[id("rome")].Status = fmt.Appendf(nil, `{"succeeded":1,"conditions":[{"type":%q,"status":"True"}]}`, other)
		s := Job(&batchv1.Job{}, 7, p, all, nil, metav1.Now())
		has := false
		for _, c := range s.Conditions {
			has = has || c.Type == want && c.Status == corev1.ConditionTrue
		}
		if !has || (s.CompletionTime != nil) != done || s.StartTime == nil || (s.Succeeded == 1) != done {
			t.Errorf("Job: %+v, want %s", s, want)
		}
	}
}

// A Job is over when each site says so, once, of what the Job is now.
func TestAJobIsOverOnce(t *testing.T) {
	p, states, online := world(site{name: "paris", has: "new", state: workload.Ready}, site{name: "rome", has: "new", state: workload.Progressing})
	all, _ := places(p, states, online, false)
	over := func(version uint64) bool {
		s := Job(&batchv1.Job{}, version, p, all, nil, metav1.Now())
		return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		})
	}
	complete := `{"type":"Complete","status":"True"}`
	states[id("paris")].Status = []byte(`{"conditions":[` + complete + `,` + complete + `]}`)
	if over(p.Version) {
		t.Error("one site speaks for both")
	}
	states[id("rome")].Status = []byte(`{"conditions":[` + complete + `]}`)
	if !over(p.Version) {
		t.Error("it is over on both")
	}
	if over(p.Version + 1) {
		t.Error("what sites say is of the Job before")
	}
}

// doneToHelm is what Helm 3's --wait-for-jobs asks of a Job, in its order.
func doneToHelm(d *batchv1.Job) string {
	switch {
	case d.Status.Failed > *d.Spec.BackoffLimit:
		return "failed"
	case d.Status.Succeeded < *d.Spec.Completions:
		return "waits"
	}
	return "done"
}

// Who compares the figures of a Job with its spec waits for all sites, and takes what failed once
// on each of many for no failure of the Job.
func TestAJobInTermsOfItsSpec(t *testing.T) {
	two, limit := int32(2), int32(1)
	job := &batchv1.Job{Spec: batchv1.JobSpec{Completions: &two, BackoffLimit: &limit}}
	p, states, online := world(site{name: "paris", has: "new", state: workload.Ready}, site{name: "rome", has: "new", state: workload.Progressing}, site{name: "oslo", has: "new", state: workload.Progressing})
	all, _ := places(p, states, online, false)
	const complete = `,"conditions":[{"type":"Complete","status":"True"}]`
	for _, c := range []struct{ paris, rome, oslo, want string }{
		{`{"succeeded":2` + complete + `}`, `{"active":1}`, `{}`, "waits"},
		{`{"succeeded":2` + complete + `}`, `{"succeeded":2` + complete + `}`, `{"succeeded":1,"active":1,"ready":1,"failed":1}`, "waits"},
		{`{"succeeded":2,"failed":1` + complete + `}`, `{"succeeded":2,"failed":1` + complete + `}`, `{"succeeded":2,"failed":1` + complete + `}`, "done"},
	} {
		for name, status := range map[string]string{"paris": c.paris, "rome": c.rome, "oslo": c.oslo} {
			states[id(name)].Status = []byte(status)
		}
		was := job.Status
		job.Status = Job(job, 7, p, all, nil, metav1.Now())
		if got := doneToHelm(job); got != c.want {
			t.Errorf("%v: %s: %+v", c, got, job.Status)
		}
		// Else the API server refuses it.
		if s := job.Status; s.Succeeded < was.Succeeded || s.Failed < was.Failed || *s.Ready > s.Active {
			t.Errorf("%+v, and before %+v", s, was)
		}
	}
	if n := completions(job, all); n != 6 {
		t.Errorf("%d completions", n)
	}
	// A site goes, and with it what it had done.
	fresh := &batchv1.Job{Spec: job.Spec, Status: batchv1.JobStatus{Succeeded: 1, Failed: 1}}
	for _, s := range states {
		s.Status = []byte(`{}`)
	}
	if s := Job(fresh, 7, p, all, nil, metav1.Now()); s.Succeeded != 1 || s.Failed != 1 {
		t.Errorf("it became less: %+v", s)
	}
	// One site's failure is the Job's.
	states[id("rome")].Status = []byte(`{"failed":2,"conditions":[{"type":"Failed","status":"True"}]}`)
	fresh.Status = Job(fresh, 7, p, all, nil, metav1.Now())
	if got := doneToHelm(fresh); got != "failed" {
		t.Errorf("%s: %+v", got, fresh.Status)
	}
}

// Pods of the version before that are ready don't make the newest ReplicaSet so.
func TestFewestAreOfTheNewestVersion(t *testing.T) {
	p, states, online := world(site{name: "paris", has: "new", state: workload.Ready, replicas: 2, live: 2}, site{name: "rome", has: "new", state: workload.Progressing})
	for status, want := range map[string]int32{
		`{"replicas":2,"updatedReplicas":1,"readyReplicas":1}`: 0,
		`{"replicas":3,"updatedReplicas":2,"readyReplicas":2}`: 1,
		`{"replicas":2,"updatedReplicas":2,"readyReplicas":2}`: 2,
		`{"replicas":1,"updatedReplicas":9,"readyReplicas":1}`: 1,
	} {
		states[id("rome")].Status = []byte(status)
		all, _ := places(p, states, online, false)
		if got := fewest(all, 2); got != want {
			t.Errorf("%s: %d, want %d", status, got, want)
		}
	}
}

// FuzzStatus: whatever status a site sends, sums stay in bounds.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(`{"replicas":2147483647,"readyReplicas":-5,"conditions":[{}]}`))
	f.Add([]byte(`[`))
	f.Add([]byte(`{"conditions":"none","observedGeneration":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, states, online := world(site{name: "a", has: "new", state: workload.Ready}, site{name: "b", has: "new", state: workload.Ready})
		for _, s := range states {
			s.Status = b
		}
		all, _ := places(p, states, online, false)
		now := metav1.Now()
		if s := Deployment(&appsv1.Deployment{}, 1, p, all, nil, now); s.Replicas < 0 || s.ReadyReplicas > s.Replicas || s.UnavailableReplicas < 0 {
			t.Errorf("%+v", s)
		}
		if s := DaemonSet(&appsv1.DaemonSet{}, 1, p, all, nil, now); s.NumberReady > s.DesiredNumberScheduled || s.NumberUnavailable < 0 {
			t.Errorf("%+v", s)
		}
		StatefulSet(&appsv1.StatefulSet{}, 1, p, all, nil, now)
		if s := Job(&batchv1.Job{}, 1, p, all, nil, now); s.Active < 0 || s.Succeeded < 0 || s.Failed < 0 {
			t.Errorf("%+v", s)
		}
		for key := range Words(all) {
			if key == "conditions" || key == "observedGeneration" {
				t.Errorf("a site says %s", key)
			}
		}
	})
}

// TestWhatRunsOnASite: the list of a site has what is placed there and no more, each with
// that site alone.
func TestWhatRunsOnASite(t *testing.T) {
	web, db := workload.ItemName("apps", "Deployment", "demo-shop", "web"), workload.ItemName("apps", "StatefulSet", "demo-shop", "db")
	placed := map[string][]site{web: {{name: "paris", has: "new", state: workload.Ready}, {name: "rome", has: "old", state: workload.Failed}}, db: {{name: "rome", silent: true}}}
	c := New(Options{
		Items: func(string) []string { return []string{web, db} },
		States: func(item string) map[fleet.SiteID]*wire.WorkloadStatus {
			_, states, _ := world(placed[item]...)
			return states
		},
		Placed: func(item string) (Placement, bool) {
			p, _, _ := world(placed[item]...)
			p.VirtualSites, p.Created = []string{"shared/all"}, time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC)
			return p, true
		},
		Online: func(fleet.SiteID) bool { return true },
	})
	h := c.Handler(func(context.Context) (string, bool) { return "demo-shop", true }, func(context.Context, schema.GroupKind, string) bool { return true })
	for query, want := range map[string]string{"": "web[] db[]", "?site=paris": "web[paris Ready]", "?site=rome": "web[rome Failed] db[rome Waiting]", "?site=oslo": ""} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/muster/workloads"+query, nil))
		var list wire.WorkloadList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range list.Items {
			var on []string
			for _, s := range w.Sites {
				on = append(on, s.Site+" "+s.State)
			}
			if !slices.Equal(w.VirtualSites, []string{"shared/all"}) {
				t.Errorf("%s goes to %v", w.Name, w.VirtualSites)
			}
			if w.Created.Year() != 2026 { // of kinds too whose objects are not read here, such as ConfigMaps
				t.Errorf("%s was made at %s", w.Name, w.Created)
			}
			got = append(got, w.Name+"["+strings.Join(on, ", ")+"]")
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: %s, want %s", query, s, want)
		}
	}
}

// TestFieldsThatDiffer: sites that have not what they should are told with the fields in which
// that differs, also those that are not connected; nobody is told values, nor any field of
// what they may not read, nor a key of a Secret; a site that says it has another object's content tells
// nobody of that.
func TestFieldsThatDiffer(t *testing.T) {
	web, secret := workload.ItemName("apps", "Deployment", "demo-shop", "web"), workload.ItemName("", "Secret", "demo-shop", "key")
	p, states, online := world(site{name: "bern", has: "old", state: workload.Ready, offline: true}, site{name: "oslo", has: "gone", state: workload.Ready}, site{name: "paris", has: "new", state: workload.Ready},
		site{name: "rome", has: "new", state: workload.Ready}, site{name: "zug", silent: true})
	states[id("rome")].Drifted, states[id("rome")].Changed = true, []string{"spec.replicas"}
	states[id("zug")] = &wire.WorkloadStatus{Name: web, Wanted: "new", Digest: "another", State: string(workload.Ready)} // it lies
	contents := map[string]string{
		"another": `{"kind":"Secret","data":{"topsecret":"topsecret"}}`,
		"old":     `{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"web","image":"topsecret:1"}]}}},"data":{"topsecret":"topsecret"}}`,
		"new":     `{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"web","image":"nginx:2"}]}}}}`,
	}
	c := New(Options{
		Items:  func(string) []string { return []string{web, secret} },
		States: func(string) map[fleet.SiteID]*wire.WorkloadStatus { return states },
		Placed: func(string) (Placement, bool) { return p, true },
		Online: online,
		Content: func(_ context.Context, digest string) ([]byte, error) {
			if contents[digest] == "" {
				return nil, fs.ErrNotExist
			}
			return []byte(contents[digest]), nil
		},
	})
	may := true
	h := c.Handler(func(context.Context) (string, bool) { return "demo-shop", true }, func(_ context.Context, kind schema.GroupKind, name string) bool {
		return may && (kind.Kind == "Deployment" && kind.Group == "apps" && name == "web" || kind.Kind == "Secret" && name == "key")
	})
	get := func(path string) string {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/muster/workloads"+path, nil))
		if strings.Contains(w.Body.String(), "topsecret:") || strings.Contains(path, "Secret") && strings.Contains(w.Body.String(), "topsecret") {
			t.Errorf("%s tells what is in it: %s", path, w.Body)
		}
		var one wire.Workload
		var list wire.WorkloadList
		err := json.Unmarshal(w.Body.Bytes(), &one)
		if strings.HasPrefix(path, "?") {
			err = json.Unmarshal(w.Body.Bytes(), &list)
			one.Sites = list.Items[0].Sites
		}
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range one.Sites {
			out = append(out, fmt.Sprint(s.Site, s.Fields, s.NoFields))
		}
		return strings.Join(out, " ")
	}
	for path, want := range map[string]string{
		"/Deployment.apps/web?fields=1": "bern[data spec.template.spec.containers[web].image] oslo[]NotKept paris[] rome[spec.replicas] zug[]",
		"/Deployment.apps/web":          "bern[] oslo[] paris[] rome[spec.replicas] zug[]",
		"/Secret/key?fields=1":          "bern[data spec] oslo[]NotKept paris[] rome[spec.replicas] zug[]",
		"?site=rome":                    "rome[spec.replicas]",
	} {
		if got := get(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	may = false
	for _, path := range []string{"/Deployment.apps/web?fields=1", "/Secret/key?fields=1", "?site=rome"} {
		if got := get(path); strings.ContainsAny(strings.ReplaceAll(got, "[]", ""), "[]") {
			t.Errorf("%s: who may not read it is told %s", path, got)
		}
	}
}
