package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/regional/logs/store"
)

const killEnv = "MUSTER_TEST_EMBEDDED_KILL_DIR"

// TestKillChild is not a test: it is the process that TestKill9 kills. It writes
// chunks and says on standard output which are acknowledged.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(killEnv)
	if dir == "" {
		t.Skip("only run by TestKill9")
	}
	s, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	run := os.Getpid()
	for n := 0; ; n++ {
		records := make([]store.Record, 50)
		for i := range records {
			records[i] = record(fmt.Sprintf("%d-%d-%d", run, n, i))
			records[i].Timestamp = records[i].Timestamp.Add(-time.Duration(i%3) * 24 * time.Hour)
		}
		res, err := s.Write(context.Background(), records)
		if err != nil || res.Stored != 50 {
			t.Fatalf("%+v, %v", res, err)
		}
		fmt.Printf("acked %d\n", n)
	}
}

func TestKill9(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.v")
		cmd.Env = append(os.Environ(), killEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		chunks := 0
		for sc := bufio.NewScanner(out); sc.Scan(); {
			text, ok := strings.CutPrefix(sc.Text(), "acked ")
			if !ok {
				continue
			}
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				acked[fmt.Sprintf("%d-%d-%d", cmd.Process.Pid, n, i)] = true
			}
			if chunks++; chunks == 3+4*round {
				// In the middle of the next chunk, or of a merge.
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait()
		if chunks < 3 {
			t.Fatalf("round %d: the child acknowledged only %d chunks", round, chunks)
		}
	}
	s := open(t, Options{Dir: dir})
	found := map[string]int{}
	q := store.Query{Tenant: "acme", Limit: store.MaxLimit}
	for {
		p, err := s.Search(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Hits {
			found[r.ID]++
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			break
		}
	}
	lost := 0
	for id := range acked {
		if found[id] == 0 {
			lost++
		}
	}
	for id, n := range found {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged records are lost", lost, len(acked))
	}
	t.Logf("%d acknowledged, %d found after 4 kills", len(acked), len(found))
}
