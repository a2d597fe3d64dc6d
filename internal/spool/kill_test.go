//go:build unix

package spool

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const (
	childEnv    = "SPOOL_TEST_CHILD_DIR"
	intervalEnv = "SPOOL_TEST_SYNC"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
	}
	os.Exit(m.Run())
}

// child appends for ever, prints a number after Append returned, and acknowledges
// every second record.
func child(dir string) {
	interval, err := time.ParseDuration(os.Getenv(intervalEnv))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := Open(Options{Dir: dir, SegmentBytes: 16 << 10, SyncInterval: interval})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	start := s.next
	for i := start; ; i++ {
		if _, err := s.Append(fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", int(i%997)))); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		if _, err := os.Stdout.WriteString(fmt.Sprintf("%d\n", i)); err != nil {
			os.Exit(1)
		}
	}
}

// TestKill9LosesNothing kills a process in the middle of appends, several times
// over the same directory, and wants every record whose Append had returned.
func TestKill9LosesNothing(t *testing.T) {
	dir := t.TempDir()
	appended := 0 // numbers 0…appended-1 were acknowledged to the writer
	for round := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childEnv+"="+dir, intervalEnv+"="+[]string{"5ms", "0s"}[round%2])
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var i int
			if _, err := fmt.Sscan(lines.Text(), &i); err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			appended = i + 1
			if n == 300+137*round {
				_ = cmd.Process.Kill() // lines that are in the pipe already still count
			}
		}
		_ = cmd.Wait()

		s := open(t, Options{Dir: dir, SegmentBytes: 16 << 10})
		got := drain(t, s)
		if len(got) < appended {
			t.Fatalf("round %d: %d records after kill -9, %d were appended", round, len(got), appended)
		}
		for i, r := range got {
			wantData := fmt.Sprintf("%d %s", i, strings.Repeat("x", i%997))
			if string(r.Data) != wantData {
				t.Fatalf("round %d: record %d is %.40q", round, i, r.Data)
			}
		}
		if st := s.Stats(); st.Dropped.Total() != 0 {
			t.Errorf("round %d: %+v", round, st)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d records over 6 kills", appended)
}
