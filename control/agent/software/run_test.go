package software

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"muster.dev/muster/internal/software/bundle"
)

// stub runs 1.0.0, and cannot say so for a while.
type stub struct {
	Driver
	broken bool
	asked  int
}

func (s *stub) State(context.Context) (State, error) {
	s.asked++
	if s.broken {
		return State{}, errors.New("the disk does not answer")
	}
	return State{Running: "1.0.0", Boot: "a", Good: true}, nil
}

func (s *stub) Verify(context.Context, string, string, int64) error { return io.ErrUnexpectedEOF }

// What is expired counts again once it was signed anew: nobody has to ask for another try.
// What was signed with other keys does not.
func TestExpiredHealsByItself(t *testing.T) {
	d := &stub{}
	var answer error
	m, err := New(Options{Component: "os", Driver: d, Path: filepath.Join(t.TempDir(), "os.json"), Fetch: func(context.Context, Wanted, func(int)) (string, error) {
		return "fetched", answer
	}})
	if err != nil {
		t.Fatal(err)
	}
	step := func(phase Phase, says string) {
		t.Helper()
		_, _ = m.Step(t.Context(), Wanted{Version: "2.0.0"})
		if s := m.Status(); s.Phase != phase || !strings.Contains(s.Message, says) {
			t.Errorf("%+v, want %s: %s", s, phase, says)
		}
	}
	step(Downloading, "")
	answer = &bundle.Refused{What: "timestamp.json", Err: &metadata.ErrExpiredMetadata{Msg: "expired"}, Remedy: "sign it anew"}
	step(Downloading, "timestamp.json is refused")
	answer = nil
	step(Installing, "it is written")
	answer = &bundle.Refused{What: "timestamp.json", Err: errors.New("another key")}
	step(Failed, "another key")
}

// A version that control names before the regional shows that it is signed is waited for, and
// not for ever.
func TestWhatIsNotSignedYet(t *testing.T) {
	absent := error(&bundle.Refused{What: "target agent/2.0.0", Err: bundle.ErrAbsent, Remedy: "publish it"})
	type step struct {
		after  time.Duration
		answer error
		phase  Phase
	}
	for name, steps := range map[string][]step{
		"signed after a minute": {{0, absent, Downloading}, {time.Minute, absent, Downloading}, {0, nil, Installing}},
		"never signed":          {{0, absent, Downloading}, {signedWithin - time.Second, absent, Downloading}, {time.Second, absent, Failed}},
	} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		var answer error
		m, err := New(Options{Component: "os", Driver: &stub{}, Path: filepath.Join(t.TempDir(), "os.json"), Now: func() time.Time { return now }, Fetch: func(context.Context, Wanted, func(int)) (string, error) {
			return "fetched", answer
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = m.Step(t.Context(), Wanted{Version: "2.0.0"}) // it hears of it
		for _, x := range steps {
			now, answer = now.Add(x.after), x.answer
			_, _ = m.Step(t.Context(), Wanted{Version: "2.0.0"})
			if s := m.Status(); s.Phase != x.phase {
				t.Errorf("%s: %+v, want %s", name, s, x.phase)
			}
		}
	}
}

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "os.json")
	synctest.Test(t, func(t *testing.T) {
		d, fetched := &stub{broken: true}, 0
		m, err := New(Options{Component: "os", Driver: d, Path: path, Fetch: func(context.Context, Wanted, func(int)) (string, error) {
			fetched++
			return "", errors.New("no line")
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		changed, ended, want := make(chan struct{}), make(chan struct{}), Wanted{}
		go func() {
			defer close(ended)
			m.Run(ctx, func() Wanted { return want }, changed, slog.New(slog.DiscardHandler))
		}()
		time.Sleep(2 * time.Hour)
		if synctest.Wait(); d.asked < 5 || d.asked > 120 {
			t.Errorf("asked %d times in two hours while it failed", d.asked)
		}
		if s := m.Status(); s.Phase != "" || s.Message != "os: what runs: the disk does not answer" {
			t.Errorf("%+v", s)
		}
		d.broken = false
		want = Wanted{Version: "2.0.0", NotBefore: time.Now().Add(time.Hour)}
		changed <- struct{}{}
		if synctest.Wait(); m.Status().Phase != Scheduled {
			t.Errorf("%+v", m.Status())
		}
		time.Sleep(time.Hour + every)
		synctest.Wait()
		if s := m.Status(); s.Phase != Downloading || s.Message != "os 2.0.0: no line" || fetched == 0 {
			t.Errorf("%+v, fetched %d times", s, fetched)
		}
		stop()
		<-ended
	})
}
