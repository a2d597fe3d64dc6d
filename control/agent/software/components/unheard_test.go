package components

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/control/agent/software"
	sw "muster.dev/muster/internal/software"
)

// crashing has 2.0.0 in its slot, which never comes up.
type crashing struct {
	software.Driver
	process int
	boots   *int
}

func (d crashing) State(context.Context) (software.State, error) {
	return software.State{Running: "1.0.0", Boot: fmt.Sprint(d.process), Good: true, Other: "2.0.0"}, nil
}
func (crashing) Verify(context.Context, string, string, int64) error { return nil }
func (crashing) Switch(context.Context, string) error                { return nil }
func (crashing) FallBack(context.Context) error                      { return nil }
func (d crashing) Boot(context.Context) error {
	*d.boots++
	return errors.New("about to be replaced")
}

type connected struct{ link }

func (*connected) Connected() error { return nil }

// Each process is told what is wanted some time after its start, or at a power cut never.
// That it has heard nothing yet does not make it forget how often a version failed; that
// nothing is wanted does.
func TestAProcessThatHasHeardNothingYet(t *testing.T) {
	const two, nothing = "2.0.0", ""
	for name, tc := range map[string]struct {
		told []string // by process; what the last is told, it is asked about
		want string
	}{
		"tried twice":               {[]string{two, two, two}, "Failed: it did not come up, 2 times"},
		"not wanted in between":     {[]string{two, nothing, two, two}, "Installing: "},
		"tried twice, and not told": {[]string{two, "unheard", two, "unheard", two}, "Failed: it did not come up, 2 times"},
	} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			kept, boots, got := store{}, 0, ""
			for process, told := range tc.told {
				c, err := New(Options{Dir: dir, Store: kept, Logger: slog.New(slog.DiscardHandler), Components: []Component{{Name: "agent", Driver: crashing{process: process, boots: &boots}}}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx, &connected{}) }()
				time.Sleep(5 * time.Second)
				switch file := (sw.File{Architecture: runtime.GOARCH, Target: "agent/2.0.0", Digest: strings.Repeat("0a", 32), Size: 7}); told {
				case two:
					c.TakeSet(set(map[string]string{}, &sw.Wanted{Component: "agent", Version: two, Files: []sw.File{file}}))
				case nothing:
					c.TakeSet(set(map[string]string{}))
				}
				for boots = 0; told == two && boots == 0 && got == ""; {
					time.Sleep(time.Second)
					if r := c.Report(); r[0].GetState() == string(software.Failed) {
						got = "Failed: " + r[0].GetMessage()
					} else if process == len(tc.told)-1 && boots > 0 {
						got = r[0].GetState() + ": "
					}
				}
				time.Sleep(10 * time.Second)
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s: %q, want %q", name, got, tc.want)
			}
		})
	}
}
