package components

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/software"
	sw "muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

// driver runs 1.0.0 and takes nothing.
type driver struct{ software.Driver }

func (driver) State(context.Context) (software.State, error) {
	return software.State{Running: "1.0.0", Boot: "a", Good: true}, nil
}
func (driver) FallBack(context.Context) error                      { return nil }
func (driver) Verify(context.Context, string, string, int64) error { return io.ErrUnexpectedEOF }

// link is an agent that is connected to nobody.
type link struct{ told atomic.Int32 }

func (*link) Endpoint() string         { return "" }
func (*link) HTTPClient() *http.Client { return http.DefaultClient }
func (*link) Connected() error         { return errors.New("it is not connected") }
func (l *link) ReportChanged()         { l.told.Add(1) }

// set makes the items of a desired state, and notes what becomes of them.
func set(said map[string]string, items ...*sw.Wanted) agent.Set {
	blobs := map[string][]byte{}
	s := agent.Set{
		Blob:    func(digest string) ([]byte, error) { return blobs[digest], nil },
		Applied: func(name, _ string, err error) { said[name] = "applied"; setErr(said, name, err) },
		Good:    func(name, _ string) bool { said[name] += ", good"; return true },
	}
	for _, w := range items {
		b := w.Encode()
		blobs[wire.DigestOf(b)] = b
		s.Items = append(s.Items, agent.SetItem{Name: w.Component, Digest: wire.DigestOf(b)})
	}
	return s
}

func setErr(said map[string]string, name string, err error) {
	if err != nil {
		said[name] = err.Error()
	}
}

func TestComponents(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, err := New(Options{Dir: dir, Components: []Component{{Name: "agent", Driver: driver{}}}, Versions: map[string]string{"os": "3.1.0"},
			Remedies: map[string]string{"platform": "buy one"}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Now(""); err == nil || err.Error() != "nothing is offered" {
			t.Error(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		l, ended := &link{}, make(chan error, 1)
		go func() { ended <- c.Run(ctx, l) }()
		settle := func() {
			time.Sleep(3 * time.Second)
			synctest.Wait()
		}
		settle()
		if r := c.Report(); len(r) != 1 || r[0].GetRunning() != "1.0.0" || r[0].GetState() != "" || l.told.Load() != 1 {
			t.Errorf("nothing is wanted: %v, told %d times", r, l.told.Load())
		}

		said := map[string]string{}
		file := []sw.File{{Architecture: runtime.GOARCH, Target: "agent/2.0.0", Digest: strings.Repeat("0a", 32), Size: 7}}
		want := &sw.Wanted{Component: "agent", Version: "2.0.0", Files: file, Requires: map[string]string{"os": "3.0.0"}, NotBefore: time.Now().Add(time.Hour), Root: json.RawMessage(`{"first":1}`)}
		c.TakeSet(set(said, want, &sw.Wanted{Component: "os"}, &sw.Wanted{Component: "platform", Version: "9.0.0"}))
		settle()
		if said["agent"] != "applied, good" || said["os"] != "applied, good" || said["platform"] != "applied, good" {
			t.Errorf("%q", said)
		}
		r := c.Report()
		if len(r) != 2 || r[0].GetState() != "Scheduled" || r[0].GetDigest() != wire.DigestOf(want.Encode()) || r[0].GetStartsAt() == nil {
			t.Errorf("%v", r)
		}
		if r[1].GetComponent() != "platform" || r[1].GetState() != "Failed" || !strings.Contains(r[1].GetMessage(), "this site can't replace its platform: buy one, or leave") || r[1].GetDigest() == "" {
			t.Errorf("%v", r[1])
		}

		c.TakeSet(set(said, want, &sw.Wanted{Component: "os", Version: "3.1.0"}))
		if r := c.Report(); len(r) != 2 || r[1].GetState() != "Done" || r[1].GetRunning() != "3.1.0" {
			t.Errorf("what somebody else brought there: %v", r)
		}

		// The first root stays, whoever sends another one.
		want.Root, want.NotBefore, want.Requires = json.RawMessage(`{"second":1}`), time.Time{}, map[string]string{"os": "3.2.0"}
		c.TakeSet(set(said, want))
		settle()
		if r := c.Report(); len(r) != 1 || r[0].GetState() != "Available" || !strings.Contains(r[0].GetMessage(), "it needs os 3.2.0 or later, and 3.1.0 runs") {
			t.Errorf("%v", r)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "root.json")); err != nil || string(b) != `{"first":1}` {
			t.Errorf("%s, %v", b, err)
		}

		want.Requires = nil
		c.TakeSet(set(said, want))
		settle()
		if r := c.Report(); r[0].GetState() != "Downloading" || !strings.Contains(r[0].GetMessage(), "no regional is known yet") {
			t.Errorf("%v", r)
		}
		other := set(said, want)
		other.Items[0].Name = "os"
		c.TakeSet(other)
		if !strings.Contains(said["os"], `component: "agent" in an item that is called "os"`) {
			t.Errorf("%q", said)
		}
		c.TakeSet(set(said)) // nothing is wanted any more
		settle()
		if r := c.Report(); len(r) != 1 || r[0].GetState() != "" || r[0].GetWanted() != "" {
			t.Errorf("%v", r)
		}
		before := l.told.Load()
		time.Sleep(time.Minute)
		if synctest.Wait(); l.told.Load() != before {
			t.Errorf("told %d times of nothing", l.told.Load()-before)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
