package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/kubectl"
)

// TestFleet is one long story on one demo, because starting it is what takes time.
func TestFleet(t *testing.T) {
	if os.Getenv("MUSTER_E2E") == "" {
		t.Skip("set MUSTER_E2E=1, or run make test-e2e: it takes the product's own ports and some minutes")
	}
	t.Parallel()
	dir := t.TempDir()
	f := start(t, dir)
	ok := t.Run("start", func(t *testing.T) { testStart(t, f) }) &&
		t.Run("cli", func(t *testing.T) { testCLI(t, f) }) &&
		t.Run("pods of the shop", func(t *testing.T) { testShop(t, f) }) &&
		t.Run("contract", func(t *testing.T) { testContract(t, f) }) &&
		t.Run("dashboards", func(t *testing.T) { testDashboards(t, f) }) &&
		t.Run("provisioned data sources", func(t *testing.T) { testProvisioned(t, f) }) &&
		t.Run("links", func(t *testing.T) { testLinks(t, f) }) &&
		t.Run("data source", func(t *testing.T) { testDataSource(t, f, "always", "paris") }) &&
		t.Run("faults", func(t *testing.T) { testFaults(t, f) }) &&
		t.Run("uplink", func(t *testing.T) { testUplink(t, f) }) &&
		t.Run("policy", func(t *testing.T) { testPolicyEdit(t, f) }) &&
		t.Run("logs", func(t *testing.T) { testLogs(t, f) }) &&
		t.Run("alerts", func(t *testing.T) { testAlerts(t, f) }) &&
		t.Run("rollouts", func(t *testing.T) { testRollouts(t, f) }) &&
		t.Run("edge", func(t *testing.T) { testEdgeProcess(t, f) }) &&
		t.Run("page", func(t *testing.T) { testPage(t, f) }) &&
		t.Run("neighbour", func(t *testing.T) { testNeighbour(t, f) }) &&
		t.Run("kill", func(t *testing.T) { testKill(t, f) })
	if !ok {
		return
	}
	t.Run("stop and resume", func(t *testing.T) { testResume(t, f) })
}

func testStart(t *testing.T, f *fleet) {
	testkit.EventuallyWithin(t, "the page answers", 2*time.Minute, func() error {
		_, err := f.sites()
		return err
	})
	t.Logf("figure: time to the page: %s", time.Since(f.began).Round(100*time.Millisecond))
	want := []string{"green", "orange", "red", "grey"}
	testkit.EventuallyWithin(t, "all sites are there, all but the unapproved one scored, in all four colours", 3*time.Minute, func() error {
		list, err := f.sites()
		if err != nil {
			return err
		}
		colours := map[string]int{}
		for _, s := range list {
			colours[s.Colour]++
		}
		if len(list) != sites || colours["grey"] != 1 {
			return fmt.Errorf("%d sites, %v", len(list), colours)
		}
		for _, c := range want {
			if colours[c] == 0 {
				return fmt.Errorf("no site is %s: %v", c, colours)
			}
		}
		return nil
	})
	t.Logf("figure: time until all sites are scored: %s", time.Since(f.began).Round(100*time.Millisecond))
	roles := f.roles()
	total := rss(f.cmd.Process.Pid)
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		t.Logf("figure: RSS of %-20s %4.0f MiB", name, rss(roles[name]))
		total += rss(roles[name])
	}
	t.Logf("figure: RSS of the whole demo     %4.0f MiB", total)
	if len(roles) < 9 {
		t.Errorf("roles found: %v", roles)
	}
	if total > 4096 {
		t.Errorf("the demo takes %.0f MiB, more than 4 GiB", total)
	}
	for _, ops := range []string{"9091", "9092", "9101", "9102", "9103", "9104", "9105", "9106", "9107"} {
		for _, path := range []string{"/metrics", "/-/ready", "/-/healthy", "/debug/", "/debug/status"} {
			if ops == "9105" || ops == "9106" { // the simulated fleet and muster-edge, for this machine alone
				if _, err := getBody("http://127.0.0.1:"+ops+path, nil); err != nil {
					t.Errorf("a process does not explain itself: %v", err)
				}
			} else if _, err := f.asOperator("https://127.0.0.1:"+ops+path, nil); err != nil {
				t.Errorf("a role does not explain itself: %v", err)
			}
		}
	}
	// The whole way: what a site pushed is in Cortex, with the stamped labels.
	testkit.Eventually(t, "samples of every connected site are in Cortex", func() error {
		r, err := f.cortexQuery(`count(count by (site) (up{tenant="demo", region!=""}))`)
		if err != nil {
			return err
		}
		if len(r.Data.Result) != 1 || r.Data.Result[0].Value[1] != strconv.Itoa(sites-1) {
			return fmt.Errorf("%v", r.Data.Result)
		}
		return nil
	})
}

func testCLI(t *testing.T, f *fleet) {
	out := f.muster("get", "sites", "-o", "wide")
	for _, want := range []string{"NAME", "this-machine", "Online", "Pending"} {
		if !strings.Contains(out, want) {
			t.Errorf("muster get sites lacks %q:\n%s", want, out)
		}
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Log("no kubectl on this machine; its view is not checked")
		return
	}
	b, err := exec.Command(kubectl, "--kubeconfig", f.dir+"/admin.kubeconfig", "get", "sites", "-A", "-o", "wide").CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl: %v\n%s", err, b)
	}
	for _, col := range []string{"PHASE", "REGION", "SCORE", "COLOUR", "LAST SEEN", "AGENT"} {
		if !strings.Contains(string(b), col) {
			t.Errorf("kubectl get sites -o wide lacks %s:\n%s", col, b)
		}
	}
}

// testShop: what the demo says to type shows the pods of the shop on every site of Europe that
// is online, each on a node that is named after its site.
func testShop(t *testing.T, f *fleet) {
	kc := filepath.Join(t.TempDir(), "kc")
	if err := os.WriteFile(kc, []byte(f.muster("vk8s", "kubeconfig", "shop/vk8s")), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := kubectl.Path(t, kubectl.Versions[len(kubectl.Versions)-1])
	testkit.Eventually(t, "three pods of web on every site of Europe that is online", func() error {
		var list struct {
			Sites []site `json:"sites"`
		}
		if err := f.get("/api/v1/health/sites?limit=1000&virtualSite=shared/europe", &list); err != nil {
			return err
		}
		out, err := exec.Command(bin, "--kubeconfig", kc, "get", "pods", "-o", "wide").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		on, err := nodesOf(string(out))
		if err != nil {
			return err
		}
		web := map[string]int{}
		for pod, node := range on {
			if strings.HasPrefix(pod, "web-") {
				site, _, _ := strings.Cut(node, "-node")
				web[site]++
			}
		}
		europe := 0
		for _, s := range list.Sites {
			if s.Phase != "Online" {
				delete(web, s.Name)
				continue
			}
			if europe++; web[s.Name] != 3 {
				return fmt.Errorf("%d pods of web on %s:\n%.2000s", web[s.Name], s.Name, out)
			}
			delete(web, s.Name)
		}
		if europe < 10 || len(web) > 0 {
			return fmt.Errorf("%d sites in Europe are online; pods on nodes of others: %v", europe, web)
		}
		return nil
	})
}

// nodesOf reads what kubectl get pods -o wide prints: pod → node.
func nodesOf(wide string) (map[string]string, error) {
	lines := strings.Split(strings.TrimSpace(wide), "\n")
	at := strings.Index(lines[0], " NODE ") + 1 // by its place: a cell may have blanks, as that of restarts
	if at == 0 {
		return nil, fmt.Errorf("no column NODE: %.300s", wide)
	}
	out := map[string]string{}
	for _, l := range lines[1:] {
		pod, _, _ := strings.Cut(l, " ")
		out[pod], _, _ = strings.Cut(l[min(at, len(l)):], " ")
	}
	return out, nil
}

// greenSites are simulated sites that are green now.
func greenSites(t *testing.T, f *fleet) []string {
	t.Helper()
	list, err := f.sites()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for name, s := range list {
		if s.Colour == "green" && name != "this-machine" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func testFaults(t *testing.T, f *fleet) {
	faults := []struct{ fault, dimension string }{
		{"node-not-ready", "reliability"}, {"crash-loop", "reliability"},
		{"cert-expiring", "security"}, {"policy-denied", "security"},
		{"disk-full", "performance"}, {"memory-pressure", "performance"}, {"cpu-throttled", "performance"},
	}
	green := greenSites(t, f)
	if len(green) < len(faults)+2 {
		t.Fatalf("only %d green sites", len(green))
	}
	broken := map[string]time.Time{}
	for i, c := range faults {
		f.muster("demo", "break", green[i], c.fault)
		broken[green[i]] = time.Now()
	}
	seen := map[string]bool{}
	testkit.EventuallyWithin(t, "every fault shows", 3*time.Minute, func() error {
		var missing []error
		for i, c := range faults {
			if seen[c.fault] {
				continue
			}
			s, err := f.site(green[i])
			switch d := s.Dimensions[c.dimension]; {
			case err != nil:
				missing = append(missing, err)
			case len(s.Reasons) == 0 || s.Reasons[0].Dimension != c.dimension:
				missing = append(missing, fmt.Errorf("%s: reasons %v", c.fault, s.Reasons))
			case d.Colour == "green":
				missing = append(missing, fmt.Errorf("%s: %s is still green", c.fault, c.dimension))
			default:
				seen[c.fault] = true
				// At once: three restarts within ten minutes are a crash loop for six more, and
				// others take a minute to show.
				f.muster("demo", "heal", green[i])
				t.Logf("figure: %-16s → %s is %s after %s; first reason: %s", c.fault, c.dimension, d.Colour,
					time.Since(broken[green[i]]).Round(time.Second), s.Reasons[0].Text)
			}
		}
		return errors.Join(missing...)
	})
	for i := range faults {
		testkit.EventuallyWithin(t, green[i]+" is green again", 4*time.Minute, func() error {
			s, err := f.site(green[i])
			if err == nil && s.Colour != "green" {
				err = fmt.Errorf("%s, %v", s.Colour, s.Reasons)
			}
			return err
		})
	}
}

func testUplink(t *testing.T, f *fleet) {
	name := greenSites(t, f)[0]
	f.muster("demo", "break", name, "uplink-down")
	took := testkit.EventuallyWithin(t, name+" is red", 3*time.Minute, func() error {
		s, err := f.site(name)
		if err == nil && (s.Colour != "red" || len(s.Reasons) == 0 || s.Reasons[0].Dimension != "connectivity") {
			err = fmt.Errorf("%s, %v", s.Colour, s.Reasons)
		}
		return err
	})
	t.Logf("figure: uplink cut → red: %s", took.Round(100*time.Millisecond))
	missed(t, "a cut uplink that shows", took, 30*time.Second)
	f.muster("demo", "heal", name)
	took = testkit.EventuallyWithin(t, name+" is green again", 3*time.Minute, func() error {
		s, err := f.site(name)
		if err == nil && s.Colour != "green" {
			err = fmt.Errorf("%s, %v", s.Colour, s.Reasons)
		}
		return err
	})
	t.Logf("figure: uplink restored → green: %s", took.Round(100*time.Millisecond))
}

// killable are the roles that may be killed at any moment.
var killable = []string{"aggregator", "regional-frankfurt", "regional-virginia", "control", "health", "alerting", "console"}

func testKill(t *testing.T, f *fleet) {
	before := time.Now()
	for _, role := range killable {
		old := f.roles()[role]
		if old == 0 {
			t.Fatalf("no %s among %v", role, f.roles())
		}
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		testkit.EventuallyWithin(t, role+" is back", 4*time.Minute, func() error {
			if pid := f.roles()[role]; pid == 0 || pid == old {
				return errors.New("not restarted yet")
			}
			_, err := f.sites()
			return err
		})
	}
	testkit.EventuallyWithin(t, "every site but the unapproved one is online and scored", 2*time.Minute, func() error {
		list, err := f.sites()
		if err != nil {
			return err
		}
		n := 0
		for _, s := range list {
			if s.Phase == "Online" && s.Colour != "grey" {
				n++
			}
		}
		if n < sites-1 { // the page's test approved the last one
			return fmt.Errorf("%d of %d", n, sites-1)
		}
		return nil
	})
	assertNoGaps(t, f, before)
}

// assertNoGaps counts samples in Cortex: each collector numbers its scrapes of
// itself in a counter, so a number that is missing is a sample that was lost on
// the way from site to Cortex.
func assertNoGaps(t *testing.T, f *fleet, since time.Time) {
	t.Helper()
	window := int(time.Since(since).Seconds()) + 60
	testkit.EventuallyWithin(t, "no number is missing in Cortex", 2*time.Minute, func() error {
		r, err := f.cortexQuery(fmt.Sprintf("muster_collector_self_scrapes_total[%ds]", window))
		if err != nil {
			return err
		}
		if len(r.Data.Result) < sites-1 {
			return fmt.Errorf("%d series", len(r.Data.Result))
		}
		total, lost := 0, 0
		for _, series := range r.Data.Result {
			last := -1.0
			for _, v := range series.Values {
				n, err := strconv.ParseFloat(v[1].(string), 64)
				if err != nil {
					return err
				}
				total++
				if last >= 0 && n > last+1 {
					lost += int(n - last - 1)
				}
				last = n
			}
		}
		if lost > 0 {
			return fmt.Errorf("%d of %d numbers are missing", lost, total+lost)
		}
		t.Logf("figure: kill -9 of %s: %d numbered samples checked in Cortex, lost: %d", strings.Join(killable, ", "), total, lost)
		return nil
	})
}

func testResume(t *testing.T, f *fleet) {
	roles := f.roles()
	took := f.stop()
	t.Logf("figure: clean stop: %s", took.Round(100*time.Millisecond))
	missed(t, "a clean stop", took, 10*time.Second)
	for name, pid := range roles {
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s is still running", name)
		}
	}
	again := start(t, f.dir)
	testkit.EventuallyWithin(t, "the same sites are back", 2*time.Minute, func() error {
		list, err := again.sites()
		if err != nil {
			return err
		}
		n := 0
		for _, s := range list {
			if s.Phase == "Online" && s.Colour != "grey" {
				n++
			}
		}
		if len(list) != sites || n < sites-1 {
			return fmt.Errorf("%d sites, %d online", len(list), n)
		}
		return nil
	})
	t.Logf("figure: second start on the same directory, until all sites are scored: %s", time.Since(again.began).Round(100*time.Millisecond))
}
