package cli

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/rollout/hold"
)

// startFlags are what `muster rollout start` is told.
type startFlags struct {
	name         string
	images       []string
	file         string
	revision     int64
	virtualSites []string
	strategy     string
	waves        []string
	approve      []int
	group, blue  string
	inFlight     int32
	soak         time.Duration
	gates        gateFlags
	onFailure    string
	maxFailed    string
	readyWithin  time.Duration
	settle       time.Duration
	dryRun       bool
	watch        bool

	several bool            // objects
	used    map[string]bool // of images
}

func rolloutStartCmd(g *Globals) *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use: "start NAMESPACE KIND/NAME... | start software COMPONENT=VERSION...", Short: "Start a rollout: new images, new content, back to a revision, or new software of sites", Args: cobra.MinimumNArgs(2), ValidArgsFunction: g.completeNamespaces,
		Long: `Start a rollout of objects: new images of workloads, new content of any object, or back to a
revision that kubectl rollout history shows. Several objects move together on each site, and
are put back together. Policies (HealthPolicy, CollectionPolicy, SoftwarePolicy,
HostConfiguration) are in the
namespace system.

start software takes versions of the sites' own software (os, agent, platform) over them: it
changes the SoftwarePolicy of the component, and makes one that is named after it and has no
version yet if there is none. Put back, sites return to what they ran before.

The sites of the virtual sites change in waves. --waves has them in order: a percentage of
all sites (those of earlier waves among them), a number of sites, a virtual site, or a label
KEY=VALUE. After each wave its gates have to hold for the soak before the next one begins.

Where a RolloutPolicy selects the objects, its plan is the default of all these flags, and to
ask for less than it does takes the verb skip-gates on rollouts.

--dry-run starts nothing, and shows which sites would change when.`,
		Example: `  muster rollout start shop deployment/web --image web=shop/web:2 --dry-run
  muster rollout start shop deployment/web --image web=shop/web:2 --virtual-site shared/eu --waves 1%,10%,100% --soak 15m -w
  muster rollout start shop deployment/web --revision 3 --strategy rolling --group 5%
  muster rollout start shop deployment/web --file deployment.yaml --waves shared/canary,10%,50% --approve-wave 2
  muster rollout start shop deployment/web deployment/api --image web=shop/web:2 --image api=shop/api:2
  muster rollout start software agent=1.4.2 --virtual-site shared/eu --waves 1%,10%,100% --dry-run
  muster rollout start system healthpolicy/default --file healthpolicy.yaml --gate ready --gate unhealthy:5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			return g.startRollout(cmd, c, tenants, args[0], args[1:], &f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.name, "name", "", "name of the rollout (default: the object's and some letters)")
	fl.StringSliceVar(&f.images, "image", nil, "CONTAINER=IMAGE to set; repeat it for several")
	fl.StringVarP(&f.file, "file", "f", "", "`FILE` with the new content: the whole objects, or of one what moves of it (the pods' template of a workload, else the spec)")
	fl.Int64Var(&f.revision, "revision", 0, "go back to this revision of a workload")
	fl.StringSliceVar(&f.virtualSites, "virtual-site", nil, "whose sites get the change, NAMESPACE/NAME (default: all that hold the object)")
	fl.StringVar(&f.strategy, "strategy", "canary", "canary, rolling or bluegreen")
	fl.StringSliceVar(&f.waves, "waves", nil, "waves of a canary (default 1%,10%,50%,100%)")
	fl.IntSliceVar(&f.approve, "approve-wave", nil, "waves, from 1, after which a person has to promote")
	fl.StringVar(&f.group, "group", "", "sites of a wave of rolling, a number or a percentage (default 1)")
	fl.StringVar(&f.blue, "blue", "", "virtual site of bluegreen whose sites change first")
	fl.Int32Var(&f.inFlight, "max-in-flight", 0, "how many sites may be changing at one moment (default: a whole wave)")
	fl.DurationVar(&f.soak, "soak", 15*time.Minute, "how long the gates have to hold after each wave")
	fl.DurationVar(&f.settle, "settle", 15*time.Minute, "for how long after a site is ready its scores and alerts may be of the update itself, and fail nothing")
	f.gates.add(fl)
	fl.StringVar(&f.onFailure, "on-failure", "rollback", "pause, rollback-wave or rollback (all sites)")
	fl.StringVar(&f.maxFailed, "max-failed", "", "failed sites in all that are allowed, a number or a percentage (default 2%)")
	fl.DurationVar(&f.readyWithin, "ready-within", 0, "how long a site may take before it counts as failed (default 10m, of software 2h)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "start nothing: show waves, sites and the expected time")
	fl.BoolVarP(&f.watch, "watch", "w", false, "follow it to its end, as muster rollout status --watch")
	for name, values := range map[string][]string{"strategy": {"canary", "rolling", "bluegreen"}, "on-failure": {"pause", "rollback-wave", "rollback"}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.MarkFlagsMutuallyExclusive("image", "file", "revision")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "watch")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// completeVirtualSites completes NAMESPACE/NAME, and NAME alone of one in the namespace shared; where a verb takes
// several, of one that is not there yet.
func (g *Globals) completeVirtualSites(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, tenants, err := g.connect(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, t := range tenants {
		for _, ns := range namespacesOf(t) {
			var list v1alpha1.VirtualSiteList
			if c.List(cmd.Context(), &list, client.InNamespace(ns)) != nil {
				continue
			}
			short := strings.TrimPrefix(ns, t.Name+"-")
			for _, v := range list.Items {
				full := short + "/" + v.Name
				if slices.Contains(args, full) || short == "shared" && slices.Contains(args, v.Name) {
					continue
				}
				if strings.HasPrefix(full, typed) {
					names = append(names, full)
				}
				if short == "shared" && typed != "" && strings.HasPrefix(v.Name, typed) {
					names = append(names, v.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// tenantWith is the one tenant that has a namespace.
func tenantWith(tenants []v1alpha1.Tenant, namespace string) (v1alpha1.Tenant, error) {
	var with []v1alpha1.Tenant
	for _, t := range tenants {
		if slices.Contains(namespacesOf(t), t.Name+"-"+namespace) {
			with = append(with, t)
		}
	}
	switch len(with) {
	case 0:
		return v1alpha1.Tenant{}, fmt.Errorf("%s: no namespace %q; `muster describe tenant` lists them", strings.Join(tenantNames(tenants), ", "), namespace)
	case 1:
		return with[0], nil
	}
	return v1alpha1.Tenant{}, fmt.Errorf("%d tenants have a namespace %q; choose one with --tenant: %s", len(with), namespace, strings.Join(tenantNames(with), ", "))
}

// objectKind reads KIND/NAME as kubectl takes it: a kind, a resource or its short name,
// with or without the group.
func objectKind(c client.Client, typed string) (offered.Kind, string, error) {
	kind, name, ok := strings.Cut(typed, "/")
	if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
		return offered.Kind{}, "", fmt.Errorf("%q: want KIND/NAME, such as deployment/web", typed)
	}
	resource, group, _ := strings.Cut(strings.ToLower(kind), ".")
	own := offered.Kind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Kind: "SoftwareVersion", Resource: "softwareversions", Spec: true, Custom: true}
	for _, k := range append(append(offered.NewSet().Kinds(), hold.Policies...), own) {
		if (group == "" || group == k.Group) && (resource == strings.ToLower(k.Kind) || resource == k.Resource || k.Short != "" && resource == k.Short) {
			return k, name, nil
		}
	}
	gvr := schema.GroupVersionResource{Group: group, Resource: resource}
	if gvk, err := c.RESTMapper().KindFor(gvr); err == nil {
		return offered.Kind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Spec: true, Custom: true}, name, nil
	}
	return offered.Kind{}, "", fmt.Errorf("%q: there is no kind %q; want one that is carried to sites, such as deployment/web, or KIND.GROUP/NAME of a CRD", typed, kind)
}

func apiVersion(k offered.Kind) string {
	return schema.GroupVersion{Group: k.Group, Version: k.Version}.String()
}

func (g *Globals) startRollout(cmd *cobra.Command, c client.Client, tenants []v1alpha1.Tenant, namespace string, typed []string, f *startFlags) error {
	ctx := cmd.Context()
	ofSoftware := namespace == "software" && strings.Contains(typed[0], "=")
	if ofSoftware {
		namespace = "system"
	}
	tenant, err := tenantWith(tenants, namespace)
	if err != nil {
		return err
	}
	var targets []target
	if ofSoftware {
		targets, err = f.softwareTargets(ctx, c, tenant.Name, typed)
	} else {
		targets, err = f.targets(ctx, c, tenant.Name, namespace, typed)
	}
	if err != nil {
		return err
	}
	r := &v1alpha1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name + "-" + namespace, Name: f.name}}
	if r.Name == "" {
		r.Name = rolloutName(targets[0].o.GetName())
	}
	for _, t := range targets {
		r.Spec.Changes = append(r.Spec.Changes, t.change)
	}
	if err := f.plan(&r.Spec); err != nil {
		return err
	}
	policy, err := policyOf(ctx, c, tenant.Name, r.Namespace, targets)
	if err != nil {
		return err
	}
	switch {
	case policy != nil:
		followPlan(&r.Spec, &policy.Spec.RolloutPlan, cmd.Flags().Changed)
		fmt.Fprintf(cmd.ErrOrStderr(), "by the plan of RolloutPolicy %s, but for what flags say\n", policy.Name)
	case ofSoftware && f.readyWithin == 0:
		r.Spec.Budget.ReadyWithin.Duration = softwareWithin
	}
	mine := owned{tenant.Name, namespace, r}
	for _, t := range targets {
		if err := t.make(ctx, c, f.dryRun); err != nil {
			return err
		}
	}
	if f.dryRun {
		// The API server says first whether it would take it, and from this user.
		if err := c.Create(ctx, r.DeepCopy(), client.DryRunAll); err != nil {
			return fmt.Errorf("rollout %s: %w", r.Name, err)
		}
		return g.dryRun(ctx, cmd.OutOrStdout(), c, tenant, mine, targets)
	}
	if err := c.Create(ctx, r); err != nil {
		return fmt.Errorf("rollout %s: %w", r.Name, err)
	}
	if f.watch {
		return g.watchRollout(ctx, cmd.OutOrStdout(), c, mine)
	}
	if done, err := g.encode(cmd.OutOrStdout(), r); done || err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s started; `muster rollout status %s --watch` follows it\n", mine, mine)
	return nil
}

// rolloutName is the object's with some letters, which the choice of sites depends on.
func rolloutName(object string) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	object = strings.Trim(strings.ToLower(strings.ReplaceAll(object, ":", "-")), "-.")
	return object[:min(len(object), 240)] + "-" + hex.EncodeToString(b[:])
}

// plan fills in how it goes over the sites.
func (f *startFlags) plan(spec *v1alpha1.RolloutSpec) error {
	spec.VirtualSites = f.virtualSites
	types := map[string]v1alpha1.RolloutStrategyType{"canary": v1alpha1.StrategyCanary, "rolling": v1alpha1.StrategyRolling, "bluegreen": v1alpha1.StrategyBlueGreen, "blue-green": v1alpha1.StrategyBlueGreen}
	ways := map[string]v1alpha1.RolloutOnFailure{"pause": v1alpha1.OnFailurePause, "rollback-wave": v1alpha1.OnFailureRollBackWave, "rollback": v1alpha1.OnFailureRollBackAll}
	st := &spec.Strategy
	var ok bool
	if st.Type, ok = types[strings.ToLower(f.strategy)]; !ok {
		return fmt.Errorf("--strategy %q: want canary, rolling or bluegreen", f.strategy)
	}
	if spec.OnFailure, ok = ways[strings.ToLower(f.onFailure)]; !ok {
		return fmt.Errorf("--on-failure %q: want pause, rollback-wave or rollback", f.onFailure)
	}
	st.Group, st.Blue, st.MaxInFlight = f.group, f.blue, f.inFlight
	switch {
	case len(f.waves) > 0 && st.Type != v1alpha1.StrategyCanary:
		return fmt.Errorf("--waves is for the strategy canary; %s has --group or --blue", f.strategy)
	case len(f.approve) > 0 && st.Type != v1alpha1.StrategyCanary:
		return fmt.Errorf("--approve-wave is for the strategy canary")
	case f.group != "" && st.Type != v1alpha1.StrategyRolling:
		return errors.New("--group is for --strategy rolling")
	case (f.blue != "") != (st.Type == v1alpha1.StrategyBlueGreen):
		return errors.New("--strategy bluegreen and --blue go together: name the virtual site whose sites change first")
	}
	if len(f.approve) > 0 && len(f.waves) == 0 {
		f.waves = []string{"1%", "10%", "50%", "100%"}
	}
	for _, typed := range f.waves {
		w, err := parseWave(typed)
		if err != nil {
			return err
		}
		st.Waves = append(st.Waves, w)
	}
	for _, n := range f.approve {
		if n < 1 || n > len(st.Waves) {
			return fmt.Errorf("--approve-wave %d: want the number of a wave, from 1 to %d", n, len(st.Waves))
		}
		st.Waves[n-1].Approval = true
	}
	if f.soak < 0 {
		return fmt.Errorf("--soak %s: want a time such as 15m, or 0s", f.soak)
	}
	if f.settle < 0 {
		return fmt.Errorf("--settle %s: want a time such as 15m, or 0s", f.settle)
	}
	spec.Soak, spec.Settle = metav1.Duration{Duration: f.soak}, &metav1.Duration{Duration: f.settle}
	spec.Budget = v1alpha1.RolloutBudget{MaxFailed: f.maxFailed, MaxFailedInWave: "10%", ReadyWithin: metav1.Duration{Duration: 10 * time.Minute}}
	if f.maxFailed == "" {
		spec.Budget.MaxFailed = "2%"
	}
	if f.readyWithin != 0 {
		spec.Budget.ReadyWithin.Duration = f.readyWithin
	}
	var err error
	spec.Gates, err = f.gates.read()
	return err
}

// parseWave reads one of --waves.
func parseWave(typed string) (v1alpha1.RolloutWave, error) {
	number := func(s string, most int) (*int32, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("--waves %q: want a percentage from 1%% to 100%%, a number of sites, a virtual site such as shared/canary, or a label KEY=VALUE", typed)
		}
		k := int32(n)
		return &k, nil
	}
	var w v1alpha1.RolloutWave
	var err error
	percent, isPercent := strings.CutSuffix(typed, "%")
	switch {
	case isPercent:
		w.Percent, err = number(percent, 100)
	case typed == "" || typed[0] >= '0' && typed[0] <= '9' && !strings.ContainsAny(typed, "/="):
		w.Count, err = number(typed, 1_000_000)
	case strings.Contains(typed, "="):
		w.Label = typed
	default:
		w.VirtualSite = typed
	}
	return w, err
}
