package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/wire"
)

// FuzzStored: whatever stands in desired.json, what is accepted names only files
// inside the directory.
func FuzzStored(f *testing.F) {
	digest := wire.DigestOf(nil)
	items := []*wire.Item{{Kind: "CollectionPolicy", Name: "effective", Digest: digest}}
	f.Add([]byte(`{"revision":"` + wire.RevisionOf(items) + `","items":[{"kind":"CollectionPolicy","name":"effective","digest":"` + digest + `"}],"good":{"a/b":"../x"}}`))
	f.Add([]byte(`{"items":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, state, err := decodeStored(b, 1<<20)
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
