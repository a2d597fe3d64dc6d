package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// watchEvery is how often a rollout that is watched is drawn anew, and read again where
// nobody says what changes.
const watchEvery = 2 * time.Second

func rolloutStatusCmd(g *Globals) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "status NAMESPACE/NAME", Short: "Where a rollout stands: waves, gates, what comes next", Args: cobra.ExactArgs(1), ValidArgsFunction: g.completeRollouts(false),
		Long: `Show where a rollout stands: its waves, what the gates of the current one read and on how
much evidence, and what is decided next and when.

With --watch it is followed to its end: in a terminal as a picture that moves, else a line
for everything that is decided. The exit code is 0 if it completes and 1 if it ends in any
other way.`,
		Example: "  muster rollout status shop/web-1a2b3c4d\n  muster rollout status shop/web-1a2b3c4d --watch\n  muster rollout status web-1a2b3c4d -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, tenants, err := g.connect(cmd.Context())
			if err != nil {
				return err
			}
			r, err := findRollout(cmd.Context(), c, tenants, args[0])
			if err != nil {
				return err
			}
			if watch {
				return g.watchRollout(cmd.Context(), cmd.OutOrStdout(), c, r)
			}
			if done, err := g.encode(cmd.OutOrStdout(), r.Rollout); done || err != nil {
				return err
			}
			drawRollout(cmd.OutOrStdout(), r, styleOf(cmd.OutOrStdout()), time.Now())
			return nil
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "follow it to its end")
	g.AddFlags(cmd)
	g.addOutput(cmd)
	return cmd
}

// watchRollout follows one to its end: by what the API server says of it, and while that
// says nothing by reading it again and again.
func (g *Globals) watchRollout(ctx context.Context, w io.Writer, c client.Client, r owned) error {
	if g.Output != "table" && g.Output != "wide" && g.Output != "" {
		return fmt.Errorf("--watch has no --output %s; read it with `kubectl get rollout -w -o %s`", g.Output, g.Output)
	}
	watcher, err := g.clientFor(0)
	if err != nil {
		return err
	}
	return followRollout(ctx, c, watcher, r, &watchView{w: w, style: styleOf(w)}, watchEvery)
}

func followRollout(ctx context.Context, c client.Client, watcher client.WithWatch, r owned, view *watchView, every time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	heard := hearRollout(ctx, watcher, r.Rollout) // nil: nobody says what changes
	for failures := 0; ; {
		view.show(r, time.Now())
		if r.Status.Phase.Ended() {
			return watchEnd(r)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-heard:
			if now, is := e.Object.(*v1alpha1.Rollout); ok && is && (e.Type == watch.Added || e.Type == watch.Modified) {
				r.Rollout = now
				continue
			}
			heard = nil // it ended, or says that it is gone: that is read
		case <-tick.C:
			if heard != nil {
				continue // only the clock in the picture
			}
		}
		now := &v1alpha1.Rollout{}
		err := c.Get(ctx, client.ObjectKeyFromObject(r.Rollout), now)
		switch {
		case err == nil:
			r.Rollout, failures = now, 0
			heard = hearRollout(ctx, watcher, now)
		case ctx.Err() != nil:
			return ctx.Err()
		case client.IgnoreNotFound(err) == nil:
			return fmt.Errorf("rollout %s was deleted while it was watched; `muster rollout list --all` shows what there is", r)
		default: // control starts anew, perhaps
			if failures++; failures > 30 {
				return fmt.Errorf("rollout %s: %w", r, err)
			}
		}
	}
}

// hearRollout is what the API server says of a rollout from its version on, until ctx ends or
// the connection does; nil: it can't be had now.
func hearRollout(ctx context.Context, c client.WithWatch, r *v1alpha1.Rollout) <-chan watch.Event {
	in, err := c.Watch(ctx, &v1alpha1.RolloutList{}, client.InNamespace(r.Namespace), client.MatchingFields{"metadata.name": r.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: r.ResourceVersion}})
	if err != nil {
		return nil
	}
	context.AfterFunc(ctx, in.Stop)
	return in.ResultChan()
}

// watchEnd is nil for one that completed.
func watchEnd(r owned) error {
	if r.Status.Phase == v1alpha1.RolloutCompleted {
		return nil
	}
	text := r.Status.Message
	if text == "" {
		text = "it says no more"
	}
	return &Exit{Code: 1, Err: fmt.Errorf("rollout %s ended %s: %s; `muster rollout explain %s` has more", r, r.Status.Phase, printable(text), r)}
}

// watchView shows a rollout again and again: in a terminal over what it showed before,
// else only what is new.
type watchView struct {
	w     io.Writer
	style style
	lines int
	line  string    // that was written last
	told  time.Time // decisions up to here
}

func (v *watchView) show(r owned, now time.Time) {
	if v.style.colour {
		var b strings.Builder
		drawRollout(&b, r, v.style, now)
		text := b.String()
		if v.lines > 0 {
			fmt.Fprintf(v.w, "\x1b[%dA\x1b[J", v.lines)
		}
		fmt.Fprint(v.w, "\x1b[?7l"+text+"\x1b[?7h") // a line that wrapped would be two to go back over
		v.lines = strings.Count(text, "\n")
		return
	}
	for _, d := range r.Status.Decisions {
		if d.At.After(v.told) {
			fmt.Fprintf(v.w, "%s  %-14s  %s%s\n", d.At.UTC().Format(time.RFC3339), d.What, printable(d.Text), byText(d.By))
		}
	}
	if n := len(r.Status.Decisions); n > 0 {
		v.told = r.Status.Decisions[n-1].At.Time
	}
	line := fmt.Sprintf("%s, wave %s, sites %s", phaseText(r.Rollout), orDash(r.Status.Progress), countsText(r.Status.Sites))
	for _, g := range r.Status.Gates {
		if g.Verdict == v1alpha1.GateFail || g.Verdict == v1alpha1.GateUnknown {
			line += fmt.Sprintf("; gate %s %s: %s", g.Name, strings.ToLower(string(g.Verdict)), printable(g.Text))
		}
	}
	if line != v.line {
		fmt.Fprintf(v.w, "%s  %-14s  %s\n", now.UTC().Format(time.RFC3339), "Progress", line)
		v.line = line
	}
}
