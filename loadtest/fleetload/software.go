package fleetload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

// firstVersion is what simulated agents run until they are told of another one.
const firstVersion = "1.0.0"

// errRestarts ends the stream of an agent that starts in another version.
var errRestarts = errors.New("the agent starts in another version")

// upgrade is a simulated agent's own software. It says what control/agent/software says,
// in its order, after delays; it installs nothing.
type upgrade struct {
	mu sync.Mutex
	// running is what says hello; before is what ran before control asked, to is where it goes.
	running, before, to string
	item                string // digest of what control said
	file                software.File
	state, message      string
	percent             int
	since               time.Time
	trial               bool
	trials              int         // that were begun
	next                *time.Timer // of the next step
}

func newUpgrade() *upgrade {
	u := &upgrade{running: firstVersion, next: time.NewTimer(time.Hour)}
	u.next.Stop()
	return u
}

func (u *upgrade) version() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.running
}

func (u *upgrade) enter(state, message string) {
	u.state, u.message, u.percent, u.since = state, message, 0, time.Now()
}

// want fetches what control says of the agent, if that is new, and begins.
func (s *site) want(ctx context.Context, client wire.UplinkClient, items []*wire.Item) error {
	u := s.upgrade
	for _, it := range items {
		if it.GetKind() != software.Kind || it.GetName() != "agent" || it.GetDigest() == u.item {
			continue
		}
		var blob bytes.Buffer
		if _, err := (holdings.Fetcher{}).To(ctx, client, it.GetDigest(), it.GetSize(), &blob); err != nil {
			return fmt.Errorf("fetch what the agent shall be: %w", err)
		}
		w, err := software.Decode(blob.Bytes())
		if err != nil {
			return err
		}
		u.mu.Lock()
		u.item = it.GetDigest()
		s.begin(w)
		u.mu.Unlock()
	}
	return nil
}

func (s *site) begin(w *software.Wanted) {
	u := s.upgrade
	u.to, u.trial = w.Version, false // what is on trial is left for it
	back := u.to == ""
	if back {
		u.to = u.before
	}
	f, released := w.For("arm64")
	u.file = f
	switch {
	case u.to == "", u.to == u.running:
		u.enter("Done", "")
	case w.Withdrawn != "":
		u.enter("Failed", "it was withdrawn: "+w.Withdrawn+"; "+u.running+" runs")
	case !released && !back:
		u.enter("Failed", "it was not released, or is not any more; "+u.running+" runs")
	default:
		u.before = cmp.Or(u.before, u.running)
		u.enter("Downloading", "")
		if back {
			u.enter("Installing", "it waits for the restart")
		}
		u.next.Reset(s.delay())
	}
}

// delay of a step, another one for each site.
func (s *site) delay() time.Duration {
	every := s.f.opts.SoftwareStep
	return every/2 + time.Duration(s.seed%uint64(every))
}

// bad tells whether versions that control wants are never well on this site.
func (s *site) bad() bool {
	return float64(s.seed*0x9e3779b97f4a7c15>>11)/(1<<53) < s.f.opts.SoftwareBad
}

// step takes the next one; errRestarts: the agent ends and starts again.
func (s *site) step(ctx context.Context) error {
	u := s.upgrade
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.state == "Downloading" && u.percent < 90:
		if u.percent == 0 && s.fetches {
			if err := s.download(ctx, u.file); err != nil {
				u.message = err.Error()
				break // and again
			}
			u.message, u.percent = "", 80
		}
		u.percent += 10
		u.next.Reset(s.delay() / 10)
		return nil
	case u.state == "Downloading":
		u.enter("Installing", "it waits for the restart")
	case u.state == "Installing" && !u.trial:
		u.trial, u.running, u.to = true, u.to, u.running
		u.trials++
		u.message = "it is on trial"
		u.next.Reset(s.delay())
		return errRestarts
	case u.state == "Installing" && s.bad() && u.running != u.before:
		u.trial, u.running, u.to = false, u.before, u.running // what was on trial when it was told of this one was never well
		u.enter("Failed", "it was not well within 10m0s: simulated; "+u.running+" runs")
		return errRestarts
	default:
		u.trial, u.to = false, u.running
		if u.running == u.before {
			u.before = ""
		}
		u.enter("Done", "")
		return nil
	}
	u.next.Reset(s.delay())
	return nil
}

// download takes the file from the regional as a real agent does, and throws it away.
func (s *site) download(ctx context.Context, f software.File) error {
	ctx, cancel := context.WithTimeout(ctx, s.f.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.f.opts.Server+"/software/blobs/sha256/"+f.Digest, nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.Digest) {
		err = fmt.Errorf("the regional answers %s with %d bytes, want %d of %.12s…", resp.Status, n, f.Size, f.Digest)
	}
	return err
}

// status is of the report.
func (u *upgrade) status() *wire.SoftwareStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := &wire.SoftwareStatus{Component: "agent", Running: u.running, Digest: u.item, State: u.state, Percent: uint32(u.percent), Message: u.message}
	switch {
	case u.item == "":
		return out
	case u.trial, u.state == "Done":
		out.Wanted = u.running
	default:
		out.Wanted = u.to
	}
	out.Since = timestamppb.New(u.since)
	return out
}

// Trials is how often each site has begun to try a version, by its name.
func (f *Fleet) Trials() map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		s.upgrade.mu.Lock()
		out[s.name] = s.upgrade.trials
		s.upgrade.mu.Unlock()
	}
	return out
}

// Software is how many sites say that their agent is in a state with a version running,
// such as "Done 2.0.0"; those that were never told of one are "1.0.0".
func (f *Fleet) Software() map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		st := s.upgrade.status()
		what := st.GetRunning()
		if st.GetState() != "" {
			what = st.GetState() + " " + what
		}
		out[what]++
	}
	return out
}

// Going is how many sites download, install or try each version now.
func (f *Fleet) Going() map[string]int {
	out := map[string]int{}
	for _, s := range f.sites {
		if st := s.upgrade.status(); st.GetState() == "Downloading" || st.GetState() == "Installing" {
			out[st.GetWanted()]++
		}
	}
	return out
}
