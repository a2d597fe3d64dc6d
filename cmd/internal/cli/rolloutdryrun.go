package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// planned waves of a dry run, for -o json.
type plannedWave struct {
	Name     string   `json:"name"`
	Sites    []string `json:"sites"`
	Offline  []string `json:"offline"`
	Soak     string   `json:"soak"`
	Approval bool     `json:"approval"`
}

type dryRunPlan struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Waves     []plannedWave `json:"waves"`
	Pinned    []string      `json:"pinned"`  // sites that name their versions themselves
	AtLeast   string        `json:"atLeast"` // the soaks
	AtMost    string        `json:"atMost"`  // if every wave takes all the time that sites have, and nothing holds it
}

func (g *Globals) dryRun(ctx context.Context, w io.Writer, c client.Client, tenant v1alpha1.Tenant, r owned, targets []target) error {
	waves, fleet, err := planRollout(ctx, c, tenant, r, targets)
	if err != nil {
		return err
	}
	plan := dryRunPlan{Namespace: r.namespace, Name: r.Name, Waves: []plannedWave{}, Pinned: append([]string{}, fleet.pinned...)}
	least, most := time.Duration(0), time.Duration(0)
	t := table{header: []string{"WAVE", "NAME", "SITES", "OFFLINE", "SOAK", "THEN", "FOR EXAMPLE"}}
	total, offline := 0, 0
	for i, wave := range waves {
		soak := wave.Soak
		if soak < 0 {
			soak = r.Spec.Soak.Duration
		}
		p := plannedWave{Name: wave.Name, Sites: wave.Sites, Offline: []string{}, Soak: soak.String(), Approval: wave.Approval}
		for _, s := range wave.Sites {
			if !fleet.online[s] {
				p.Offline = append(p.Offline, s)
			}
		}
		then := "the next wave"
		if i == len(waves)-1 {
			then = "the end"
		}
		if wave.Approval {
			then = "a person promotes"
		}
		least, most = least+soak, most+soak+r.Spec.Budget.ReadyWithin.Duration
		total, offline = total+len(p.Sites), offline+len(p.Offline)
		plan.Waves = append(plan.Waves, p)
		t.rows = append(t.rows, []string{strconv.Itoa(i + 1), wave.Name, strconv.Itoa(len(p.Sites)), strconv.Itoa(len(p.Offline)), shortTime(int32(soak.Seconds())), then, examples(p.Sites, 4)})
	}
	plan.AtLeast, plan.AtMost = least.String(), most.String()
	if done, err := g.encode(w, plan); done || err != nil {
		return err
	}
	if total == 0 {
		return fmt.Errorf("no site would change: none holds %s, or the virtual sites have none of those that do; `muster get virtualsites` shows their members", changesText(r.Spec.Changes))
	}
	fmt.Fprintf(w, "%s of namespace %s would change on %s in %s; nothing has been started\n\n", changesText(r.Spec.Changes), r.namespace, plural(total, "site"), plural(len(waves), "wave"))
	if err := g.print(w, nil, t); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nexpected: at least %s of soaking, at most %s if each wave takes all of its %s to get ready\n", human(least), human(most), human(r.Spec.Budget.ReadyWithin.Duration))
	if offline > 0 {
		fmt.Fprintf(w, "offline now: %s; they hold nothing up, and are caught up when they return\n", plural(offline, "site"))
	}
	if fleet.maintenance > 0 {
		fmt.Fprintf(w, "in maintenance now: %s; they wait until it ends\n", plural(fleet.maintenance, "site"))
	}
	if n := len(fleet.pinned); n > 0 {
		fmt.Fprintf(w, "nothing changes on %s, %s: spec.software of the Site names the version, which counts before policies\n", plural(n, "site"), examples(fleet.pinned, 4))
	}
	fmt.Fprintf(w, "these very sites: the same command with --name %s in the place of --dry-run\n", r.Name)
	return nil
}

func human(d time.Duration) string {
	to := time.Minute
	if d < 10*time.Minute {
		to = time.Second
	}
	out := d.Round(to).String()
	for _, none := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(out, none) {
			out = out[:len(out)-2]
		}
	}
	return out
}

func examples(names []string, n int) string {
	shown := strings.Join(names[:min(len(names), n)], ", ")
	if len(names) > n {
		shown += ", …"
	}
	return orDash(shown)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
