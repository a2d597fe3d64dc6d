package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// siteReset are the flags of `muster site reset`.
type siteReset struct {
	yes, discard, manual, wait, cancel, status bool
	expires                                    time.Duration
}

const siteResetLong = `Have a site go back to how it was before it registered, and come back as the same
site with a new key. Its own operator must have switched that on, with
factoryReset.enabled in its edge.yaml.

  asked        the site is told once it is connected, until --expires
  confirmed    it answered with a nonce that it made up, and is given its order
  resetting    there is no way back: it gives back what it runs for the fleet, sends what
               was not sent (unless --discard-spool), puts its host's configuration back,
               and removes its key, its certificate and what it was told to hold
  completed    it is back under its name, with its labels; its former key is refused

Versions of software stay. It takes the verb reset on sites, which administrators of a
tenant have.`

func (r *siteReset) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do it without asking")
	cmd.Flags().DurationVar(&r.expires, "expires", time.Hour, "how long the request waits for the site; a site that is away longer stays as it is")
	cmd.Flags().BoolVar(&r.discard, "discard-spool", false, "drop samples that the site has not sent yet; without, it sends them first, for at most 15 minutes")
	cmd.Flags().BoolVar(&r.manual, "approve-again", false, "have the site wait for muster approve when it is back")
	cmd.Flags().BoolVar(&r.wait, "wait", false, "follow it until it is over; exits with 1 unless the site is back")
	cmd.Flags().BoolVar(&r.cancel, "cancel", false, "take the request back; a site that has begun goes on")
	cmd.Flags().BoolVar(&r.status, "status", false, "say how far it is, and ask for nothing")
	cmd.MarkFlagsMutuallyExclusive("yes", "cancel", "status")
}

func (r *siteReset) run(cmd *cobra.Command, c client.Client, s *v1alpha1.Site, _ []string) (string, error) {
	switch {
	case r.status:
		return resetText(s.Status.Reset), nil
	case r.cancel:
		if s.Spec.Reset == nil {
			return "", fmt.Errorf("nobody asks for a reset of %s", s.Name)
		}
		return "the request to reset " + s.Name + " is taken back; muster site reset " + s.Name + " --status says whether it had begun", patchSite(cmd.Context(), c, s, func() { s.Spec.Reset = nil })
	case !r.yes:
		return "", fmt.Errorf("a reset takes everything off %s that the fleet gave it, and its key; add --yes if you mean it", s.Name)
	case r.expires < v1alpha1.MinResetWait || r.expires > v1alpha1.MaxResetWait:
		return "", fmt.Errorf("--expires %s: want 1m to 720h", r.expires)
	}
	asked := v1alpha1.AskReset(time.Now(), r.expires, r.discard, r.manual)
	if err := patchSite(cmd.Context(), c, s, func() { s.Spec.Reset = asked }); err != nil {
		return "", err
	}
	if !r.wait {
		return fmt.Sprintf("%s is asked to reset itself, until %s; muster site reset %s --status says how far it is", s.Name, asked.Expires.UTC().Format(time.RFC3339), s.Name), nil
	}
	return followReset(cmd.Context(), cmd.OutOrStdout(), c, s, asked.ID, time.Second)
}

// followReset prints each step until the request is over.
func followReset(ctx context.Context, w io.Writer, c client.Client, s *v1alpha1.Site, id string, every time.Duration) (string, error) {
	said := ""
	for {
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return "", fmt.Errorf("site %s: %w", s.Name, err)
		}
		if st := s.Status.Reset; st != nil && st.ID == id {
			now := resetText(st)
			if st.Phase == v1alpha1.ResetCompleted {
				return now, nil
			} else if st.Phase.Over() {
				return "", errors.New(now)
			}
			if now != said {
				said = now
				fmt.Fprintln(w, now)
			}
		} else if s.Spec.Reset == nil || s.Spec.Reset.ID != id {
			return "", fmt.Errorf("somebody else asks something of %s now", s.Name)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(every):
		}
	}
}

// resetText is how far a reset is, in a line.
func resetText(st *v1alpha1.SiteResetStatus) string {
	if st == nil {
		return "nobody has asked for a reset"
	}
	out := strings.ToLower(string(st.Phase))
	if st.Phase == v1alpha1.ResetResetting {
		out += " since " + st.Since.UTC().Format(time.RFC3339)
	}
	if st.Overdue(time.Now()) {
		return out + ", and not back: look whether the machine has power and its uplink, and at its log; if it is gone, muster site decommission"
	}
	if st.Message != "" {
		out += ": " + st.Message
	}
	return out
}
