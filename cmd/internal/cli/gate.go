package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/control/api/v1alpha1"
)

// Exit codes of muster gate check.
const (
	exitFail    = 1
	exitError   = 2
	exitNotYet  = 3
	checkAnswer = 45 * time.Second // until a check that has no answer is given up
	checkAgain  = 15 * time.Second // between checks, with --wait
)

func gateCmd(g *Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "gate", Short: "Ask whether sites are well enough to go on"}
	cmd.AddCommand(gateCheckCmd(g))
	return cmd
}

// gateFlags name gates, on the command line or in a file.
type gateFlags struct {
	short []string
	file  string
}

func (f *gateFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.short, "gate", nil, "a gate: ready, score:MIN, unhealthy:PERCENT, before:POINTS, peers:POINTS, alerts:SEVERITY,...; repeat it for several")
	fl.StringVar(&f.file, "gates", "", "`FILE` with a list of gates as in a Rollout, for those that --gate can't say")
}

// read returns the gates; none: the defaults.
func (f *gateFlags) read() ([]v1alpha1.RolloutGate, error) {
	var out []v1alpha1.RolloutGate
	if f.file != "" {
		raw, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("--gates: %w", err)
		}
		if out, err = parseGates(raw); err != nil {
			return nil, fmt.Errorf("--gates %s: %w", f.file, err)
		}
	}
	for _, typed := range f.short {
		gate, err := parseGate(typed)
		if err != nil {
			return nil, err
		}
		out = append(out, gate)
	}
	return out, nil
}

// parseGates reads a list of gates, or an object with a field gates.
func parseGates(raw []byte) ([]v1alpha1.RolloutGate, error) {
	var doc struct {
		Gates []v1alpha1.RolloutGate `json:"gates"`
	}
	listErr := yaml.UnmarshalStrict(raw, &doc.Gates)
	if listErr == nil && len(doc.Gates) > 0 {
		return doc.Gates, nil
	}
	doc.Gates = nil
	if err := yaml.UnmarshalStrict(raw, &doc); err == nil && len(doc.Gates) > 0 {
		return doc.Gates, nil
	}
	if listErr == nil {
		listErr = errors.New("it has none")
	}
	return nil, fmt.Errorf("want a list of gates, each with a name and one kind, such as `- {name: peers, peers: {maxDrop: 5}}`: %w", listErr)
}

// parseGate reads one of --gate.
func parseGate(typed string) (v1alpha1.RolloutGate, error) {
	kind, value, has := strings.Cut(typed, ":")
	out := v1alpha1.RolloutGate{Name: kind}
	wrong := func() (v1alpha1.RolloutGate, error) {
		return out, fmt.Errorf("--gate %q: want ready, score:MIN, unhealthy:PERCENT, before:POINTS, peers:POINTS or alerts:SEVERITY,...; others with --gates FILE", typed)
	}
	n, err := strconv.Atoi(value)
	number := int32(n)
	inRange := err == nil && n >= 0 && n <= 100
	change := &v1alpha1.GateChange{MaxDrop: 10}
	if has && inRange {
		change.MaxDrop = number
	}
	switch kind {
	case "ready":
		out.Ready = &v1alpha1.GateReady{Percent: 100}
		if has {
			out.Ready.Percent = number
		}
	case "score":
		out.Score = &v1alpha1.GateScore{Dimension: "Site", Minimum: number}
	case "unhealthy":
		out.Unhealthy = &v1alpha1.GateUnhealthy{MaxPercent: number}
	case "before":
		out.Before = change
	case "peers":
		out.Peers = change
	case "alerts":
		if value == "" {
			return wrong()
		}
		out.Alerts = &v1alpha1.GateAlerts{Severities: strings.Split(value, ",")}
		return out, nil
	default:
		return wrong()
	}
	if optional := kind == "ready" || kind == "before" || kind == "peers"; has && !inRange || !has && !optional {
		return wrong()
	}
	return out, nil
}

// checkFlags are what `muster gate check` is told.
type checkFlags struct {
	virtualSite, namespace, peers string
	sites                         []string
	since, wait                   time.Duration
	gates                         gateFlags
}

func gateCheckCmd(g *Globals) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use: "check --virtual-site NAMESPACE/NAME", Short: "Read gates once; the exit code is the verdict",
		Long: `Ask whether the sites of a virtual site are well enough to go on, after a pipeline of your
own changed something there: the gates of a rollout, read once. With --since what the sites
were before is what they are compared with, and with --peers the other sites of a second
virtual site too.

The exit code is the verdict, for scripts:

  0   pass
  1   fail: put it back
  2   error: nothing could be asked, such as wrong flags, rights, or no answer
  3   not yet, or unknown: more time, sites or data are needed; ask again

With --wait it asks again until the gates pass or fail, for this long at most; a control
plane that does not answer meanwhile is asked again too.`,
		Example: `  muster gate check --virtual-site shared/canary --since 10m
  muster gate check --virtual-site shared/canary --peers shared/stores --since 10m --wait 30m && ./promote.sh
  muster gate check --virtual-site shared/canary --gate score:75 --gate alerts:critical,warning
  muster gate check --site paris-07,lyon-02 --namespace shop --gates gates.yaml -o json`,
		Args: func(cmd *cobra.Command, args []string) error { return orError(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			verdict, err := g.checkGates(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), &f)
			if err != nil {
				return orError(g.wayOut(err))
			}
			switch verdict {
			case v1alpha1.GatePass:
				return nil
			case v1alpha1.GateFail:
				return &Exit{Code: exitFail}
			}
			return &Exit{Code: exitNotYet}
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return orError(err) })
	fl := cmd.Flags()
	fl.StringVar(&f.virtualSite, "virtual-site", "", "whose sites have the change, NAMESPACE/NAME, or NAME of one in the namespace shared")
	fl.StringSliceVar(&f.sites, "site", nil, "sites that have it, in the place of a virtual site")
	fl.StringVar(&f.namespace, "namespace", "", "where the check is made, as you type it (default: the virtual site's)")
	fl.StringVar(&f.peers, "peers", "", "virtual site with whose other sites they are compared")
	fl.DurationVar(&f.since, "since", 0, "how long ago they got the change, such as 10m")
	fl.DurationVar(&f.wait, "wait", 0, "ask again until the gates pass or fail, for this long at most")
	f.gates.add(fl)
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// orError gives an error the exit code of one that is no verdict.
func orError(err error) error {
	if err == nil {
		return nil
	}
	return &Exit{Code: exitError, Err: err}
}

// spec of the check, and where it is made.
func (f *checkFlags) spec(now time.Time) (string, v1alpha1.GateCheckSpec, error) {
	out := v1alpha1.GateCheckSpec{Sites: f.sites, Peers: shared(f.peers), VirtualSite: shared(f.virtualSite)}
	switch {
	case (f.virtualSite == "") == (len(f.sites) == 0):
		return "", out, errors.New("want either --virtual-site or --site: whose sites have the change")
	case f.since < 0 || f.wait < 0:
		return "", out, errors.New("--since and --wait: want a time such as 10m")
	}
	namespace := f.namespace
	if namespace == "" {
		if namespace, _, _ = strings.Cut(out.VirtualSite, "/"); namespace == "" {
			return "", out, errors.New("--site needs --namespace: where the check is made, such as shop")
		}
	}
	if f.since > 0 {
		out.Since = &metav1.Time{Time: now.Add(-f.since)}
	}
	var err error
	out.Gates, err = f.gates.read()
	return namespace, out, err
}

// shared adds the namespace of virtual sites that are named without one.
func shared(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	return "shared/" + name
}

func (g *Globals) checkGates(ctx context.Context, w, progress io.Writer, f *checkFlags) (v1alpha1.GateVerdict, error) {
	namespace, spec, err := f.spec(time.Now())
	if err != nil {
		return "", err
	}
	if _, err := g.encode(io.Discard, nil); err != nil {
		return "", err
	}
	c, tenants, err := g.connect(ctx)
	if err != nil {
		return "", err
	}
	tenant, err := tenantWith(tenants, namespace)
	if err != nil {
		return "", err
	}
	check, err := waitForVerdict(ctx, c, &v1alpha1.GateCheck{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name + "-" + namespace, GenerateName: "cli-"}, Spec: spec}, f.wait, checkAgain, progress)
	if err != nil {
		return "", err
	}
	if done, err := g.encode(w, check); done || err != nil {
		return check.Status.Verdict, err
	}
	drawCheck(w, check, styleOf(w))
	return check.Status.Verdict, nil
}

// waitForVerdict makes checks until one passes or fails, or the next would be after wait. A
// control plane that is away for a while, or busy, is asked again as well.
func waitForVerdict(ctx context.Context, c client.Client, ask *v1alpha1.GateCheck, wait, again time.Duration, progress io.Writer) (*v1alpha1.GateCheck, error) {
	until := time.Now().Add(wait)
	said := ""
	for {
		check := ask.DeepCopy()
		err := c.Create(ctx, check)
		if err != nil {
			err = fmt.Errorf("gate check: %w", err)
		} else {
			err = awaitCheck(ctx, c, check)
		}
		v := check.Status.Verdict
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch last := !time.Now().Add(again).Before(until); {
		case err != nil && (last || refused(err)):
			return nil, err
		case err == nil && (last || v == v1alpha1.GatePass || v == v1alpha1.GateFail):
			return check, nil
		}
		line := fmt.Sprintf("%s: %s", strings.ToLower(string(v)), printable(check.Status.Message))
		if err != nil {
			line = "no answer: " + printable(err.Error())
		}
		if line != said {
			fmt.Fprintln(progress, line)
			said = line
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(again):
		}
	}
}

// refused tells whether the API server has answered, and would answer the same again.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err)
}

// awaitCheck reads the check until it has a verdict.
func awaitCheck(ctx context.Context, c client.Client, check *v1alpha1.GateCheck) error {
	ctx, cancel := context.WithTimeout(ctx, checkAnswer)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for check.Status.Verdict == "" {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("gate check %s has no answer after %s; is muster control running?", check.Name, checkAnswer)
			}
			return ctx.Err()
		case <-tick.C:
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(check), check); err != nil && ctx.Err() == nil {
			return fmt.Errorf("gate check %s: %w", check.Name, err)
		}
	}
	return nil
}

func drawCheck(w io.Writer, check *v1alpha1.GateCheck, s style) {
	drawGates(w, check.Status.Gates, s)
	fmt.Fprintf(w, "%s %s: %s\n", s.mark(check.Status.Verdict), check.Status.Verdict, orDash(printable(check.Status.Message)))
}
