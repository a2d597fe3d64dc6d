package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/wire"
)

// FuzzStored: whatever stands in desired.json and the changes beside it, what is accepted names only files
// inside the directory.
func FuzzStored(f *testing.F) {
	digest := wire.DigestOf(nil)
	items := []*wire.Item{{Kind: "CollectionPolicy", Name: "effective", Digest: digest}}
	f.Add([]byte(`{"revision":"`+wire.RevisionOf(items)+`","items":[{"kind":"CollectionPolicy","name":"effective","digest":"`+digest+`"}],"good":{"a/b":"../x"}}`), []byte(`{"good":{"a/b":"../y"}}`))
	f.Add([]byte(`{"items":[null]}`), []byte(`{}`))
	next := append(items, &wire.Item{Kind: "Object", Name: "a", Digest: digest})
	change, err := proto.Marshal(&wire.DesiredChange{Revision: wire.RevisionOf(next), Splices: []*wire.Splice{{Keep: 1, Add: next[1:]}}})
	if err != nil {
		f.Fatal(err)
	}
	line, err := json.Marshal(storedChange{Items: change})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"items":[{"kind":"CollectionPolicy","name":"effective","digest":"`+digest+`"}]}`), line)
	f.Fuzz(func(t *testing.T, b, change []byte) {
		s, state, err := decodeStored(b, [][]byte{change}, 1<<20)
		if err != nil {
			return
		}
		for _, it := range state.Items {
			if len(it.Digest) != 64 || it.Size < 0 || it.Size > 1<<20 {
				t.Errorf("accepted %v", it)
			}
		}
		for k, digest := range s.Good {
			if !holdings.IsDigest(digest) {
				t.Errorf("accepted %s=%q", k, digest)
			}
		}
	})
}

// manyItems is a state of n objects, of which all are good.
func manyItems(n int) stored {
	var items []*wire.Item
	s := stored{Good: map[string]string{}}
	for i := range n {
		it := storedItem{"KubernetesObject", fmt.Sprintf("Deployment.apps/acme-shop/workload-%05d", i), wire.DigestOf([]byte{byte(i), byte(i >> 8)}), 2000}
		s.Items, s.Good[it.key()] = append(s.Items, it), it.Digest
		items = append(items, it.wire())
	}
	s.Revision = wire.RevisionOf(items)
	return s
}

// changed is s with another version of one item.
func (s stored) changed(i int, content string) stored {
	s.Items = append([]storedItem(nil), s.Items...)
	s.Items[i].Digest = wire.DigestOf([]byte(content))
	s.Revision = wire.RevisionOf(s.state().Items)
	return s
}

func (s stored) proved(i int) stored {
	s.Good = maps.Clone(s.Good)
	s.Good[s.Items[i].key()] = s.Items[i].Digest
	return s
}

func sizes(t testing.TB, dir string) (sum int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		sum += st.Size()
	}
	return sum
}

// TestOneOfManyWritesWhatChanged: a change of one of 10,000 objects, and that it has proved
// itself, cost a site's flash hundreds of bytes, and are there after a restart.
func TestOneOfManyWritesWhatChanged(t *testing.T) {
	a := &Agent{opts: Options{Dir: t.TempDir(), MaxBlob: 1 << 20}}
	if err := a.loadStored(); err != nil {
		t.Fatal(err)
	}
	now := manyItems(10000)
	if err := a.store(now); err != nil {
		t.Fatal(err)
	}
	before := sizes(t, a.opts.Dir)
	const changes = 20
	for i := range changes {
		for _, now = range []stored{now.changed(i*7, fmt.Sprint("new", i)), now.changed(i*7, fmt.Sprint("new", i)).proved(i * 7)} {
			if err := a.store(now); err != nil {
				t.Fatal(err)
			}
		}
	}
	each := (sizes(t, a.opts.Dir) - before) / changes
	t.Logf("figure: %d bytes on the disk for a change of one of %d objects, of %d", each, len(now.Items), before)
	if each > 1000 {
		t.Errorf("%d bytes for a change of one object", each)
	}
	b, lines, err := journal.New(disk.OS{}, filepath.Join(a.opts.Dir, desiredFile), 0o600).Load()
	if err != nil {
		t.Fatal(err)
	}
	held, state, err := decodeStored(b, lines, 1<<20)
	if err != nil || held.Revision != now.Revision || state.Revision != now.Revision || !maps.Equal(held.Good, now.Good) || len(lines) != 2*changes {
		t.Errorf("revision %s of %d changes, want %s; %v", held.Revision, len(lines), now.Revision, err)
	}
}

// BenchmarkStoreOneOfMany is what the agent's disk is given for one of 10,000 objects.
func BenchmarkStoreOneOfMany(b *testing.B) {
	a := &Agent{opts: Options{Dir: b.TempDir(), MaxBlob: 1 << 20}}
	if err := a.loadStored(); err != nil {
		b.Fatal(err)
	}
	now := manyItems(10000)
	other := now.changed(5000, "new")
	for b.Loop() {
		now, other = other, now
		if err := a.store(now); err != nil {
			b.Fatal(err)
		}
	}
}

// TestJoinAgain: a start with the gateways in a config, and nothing else, keeps what the
// machine was told when it joined, and writes nothing.
func TestJoinAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "agent")
	hash, other := "sha256:"+strings.Repeat("ab", 32), "sha256:"+strings.Repeat("cd", 32)
	first := JoinConfig{Servers: []string{"gw.example.com:7443"}, Token: "secret", CAHash: hash, Site: "paris"}
	if err := Join(dir, first); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, joinFile)
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []JoinConfig{first, {Servers: first.Servers}, {Servers: []string{"https://gw.example.com:7443"}, CAHash: hash}} {
		if err := Join(dir, j); err != nil {
			t.Fatal(err)
		}
		if after, err := os.Stat(file); err != nil || !os.SameFile(before, after) {
			t.Errorf("%+v was written anew: %v", j, err)
		}
	}
	if err := Join(dir, JoinConfig{Servers: []string{"two.example.com:7443"}}); err != nil {
		t.Fatal(err)
	}
	got, err := Joined(dir)
	if err != nil || got.Token != "secret" || got.Site != "paris" || got.CAHash != hash || got.Servers[0] != "two.example.com:7443" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Join(dir, JoinConfig{Servers: first.Servers, CAHash: other}); err == nil || !strings.Contains(err.Error(), "--token") {
		t.Errorf("another fleet with the token of this one: %v", err)
	}
}
