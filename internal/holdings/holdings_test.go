package holdings

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"muster.dev/muster/internal/wire"
)

// server serves one blob, in chunks, and breaks off as it is told.
type server struct {
	content []byte
	breaks  []int // after so many bytes of an attempt; then no more
	hangs   bool
	offsets []int64
}

type stream struct {
	grpc.ClientStream
	ctx   context.Context
	rest  []byte
	left  int // until it breaks; negative: never
	hangs bool
}

func (s *server) FetchBlob(ctx context.Context, in *wire.FetchBlobRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[wire.BlobChunk], error) {
	s.offsets = append(s.offsets, in.Offset)
	if in.Offset > int64(len(s.content)) {
		return nil, status.Error(codes.OutOfRange, "beyond the end")
	}
	st := &stream{ctx: ctx, rest: s.content[in.Offset:], left: -1, hangs: s.hangs}
	if len(s.breaks) > 0 {
		st.left, s.breaks = s.breaks[0], s.breaks[1:]
	}
	return st, nil
}

func (s *stream) Recv() (*wire.BlobChunk, error) {
	if s.hangs {
		<-s.ctx.Done()
		return nil, s.ctx.Err()
	}
	if s.left == 0 {
		return nil, status.Error(codes.Unavailable, "broken off")
	}
	if len(s.rest) == 0 {
		return nil, io.EOF
	}
	n := min(10, len(s.rest))
	if s.left > 0 {
		n = min(n, s.left)
		s.left -= n
	}
	c := &wire.BlobChunk{Data: s.rest[:n]}
	s.rest = s.rest[n:]
	return c, nil
}

func open(t testing.TB, sharded bool) *Dir {
	t.Helper()
	d, err := Open(filepath.Join(t.TempDir(), "blobs"), 0o640, sharded)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A download goes on where it broke off: within a call, in the next one, and after a
// restart; and what is not the content never counts.
func TestFetchGoesOn(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 20)
	digest, size := wire.DigestOf(content), int64(len(content))
	for _, sharded := range []bool{false, true} {
		d := open(t, sharded)
		s := &server{content: content, breaks: []int{25}}
		if _, err := d.Fetch(t.Context(), Fetcher{}, s, digest, size); err == nil || errors.Is(err, ErrContent) || d.Has(digest, size) {
			t.Fatalf("a broken download: %v", err)
		}
		again, err := Open(d.path, 0o640, sharded)
		if err != nil {
			t.Fatal(err)
		}
		s.breaks = []int{30}
		if n, err := again.Fetch(t.Context(), Fetcher{Attempts: 2}, s, digest, size); err != nil || n != size {
			t.Fatal(n, err)
		}
		if got, want := s.offsets, []int64{0, 25, 55}; len(got) != 3 || got[1] != want[1] || got[2] != want[2] {
			t.Errorf("asked from %v, want %v", got, want)
		}
		b, err := again.Read(digest)
		if err != nil || !bytes.Equal(b, content) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		if _, err := os.Stat(again.File(digest) + partSuffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the part is left: %v", err)
		}
	}
}

func TestFetchRefuses(t *testing.T) {
	content := []byte("what was asked for")
	digest, size := wire.DigestOf(content), int64(len(content))
	for name, c := range map[string]struct {
		part   string // that is there
		served []byte
		size   int64
	}{
		"other bytes":             {"", []byte("something else here"), 100},
		"more than was announced": {"", content, size - 1},
		"a part of another":       {"WHAT", content, size},
		"beyond the end":          {strings.Repeat("x", 30), content, 100},
	} {
		d := open(t, false)
		if c.part != "" {
			if err := os.WriteFile(d.File(digest)+partSuffix, []byte(c.part), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Fetch(t.Context(), Fetcher{Attempts: 5}, &server{content: c.served}, digest, c.size); !errors.Is(err, ErrContent) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := d.Read(digest); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it can be read: %v", name, err)
		}
		// The next time it begins anew, and gets it.
		if _, err := d.Fetch(t.Context(), Fetcher{}, &server{content: content}, digest, size); err != nil {
			t.Errorf("%s: then: %v", name, err)
		}
	}
	d := open(t, false)
	if _, err := d.Fetch(t.Context(), Fetcher{}, &server{}, "../../etc/passwd", 1); err == nil {
		t.Error("a path was taken for a digest")
	}
	// A part that is longer than the blob is none of it, and a whole one needs no server.
	if err := os.WriteFile(d.File(digest)+partSuffix, append(bytes.Clone(content), '!'), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Fetch(t.Context(), Fetcher{}, &server{content: content}, digest, size); err != nil {
		t.Error(err)
	}
	if err := os.Rename(d.File(digest), d.File(digest)+partSuffix); err != nil {
		t.Fatal(err)
	}
	nobody := &server{}
	if _, err := d.Fetch(t.Context(), Fetcher{}, nobody, digest, size); err != nil || len(nobody.offsets) != 0 {
		t.Error(err, nobody.offsets)
	}
}

func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := Fetcher{Silence: 20 * time.Second}.To(t.Context(), &server{hangs: true}, wire.DigestOf(nil), 1, io.Discard)
		if d := time.Since(began); err == nil || d != 20*time.Second {
			t.Errorf("%v after %s", err, d)
		}
	})
}

func TestDamage(t *testing.T) {
	d := open(t, false)
	content := []byte("good")
	digest := wire.DigestOf(content)
	for name, read := range map[string]func() error{"Read": func() error { _, err := d.Read(digest); return err }, "Verify": func() error { return d.Verify(digest) }} {
		if err := d.Write(digest, content); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.WriteFile(d.File(digest), []byte("gone"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, ErrDamaged) || d.Has(digest, 4) {
			t.Errorf("%s of another content: %v", name, err)
		}
	}
	if err := d.Write(digest, []byte("else")); !errors.Is(err, ErrContent) || d.Has(digest, 4) {
		t.Errorf("written under another's name: %v", err)
	}
	other := wire.DigestOf([]byte("other"))
	if err := errors.Join(d.Write(digest, content), d.Write(other, []byte("other")), os.WriteFile(d.File(other)+partSuffix, nil, 0o640), os.WriteFile(d.File(digest)+partSuffix, nil, 0o640)); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep(map[string]bool{digest: true}); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(d.path)
	if len(left) != 2 || !strings.HasPrefix(left[1].Name(), digest) {
		t.Errorf("left: %v", left)
	}
}

func FuzzCheck(f *testing.F) {
	item := &wire.Item{Kind: "K", Name: "n", Digest: wire.DigestOf([]byte("x")), Size: 1}
	for _, set := range []*wire.DesiredState{{}, {Items: []*wire.Item{item}, Revision: wire.RevisionOf([]*wire.Item{item})}, {Items: []*wire.Item{item, item}}, {Items: []*wire.Item{{Kind: "a/b", Name: ".."}}}} {
		b, err := proto.Marshal(set)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		set := &wire.DesiredState{}
		if proto.Unmarshal(b, set) != nil {
			return
		}
		if Check(set, Limits{Items: 10, Bytes: 100}) != nil {
			return
		}
		seen := map[string]bool{}
		for _, it := range set.Items {
			if len(it.Digest) != 64 || strings.ContainsAny(it.Digest, "/.") || it.Size > 100 || seen[Key(it)] {
				t.Fatalf("let through: %v", set)
			}
			seen[Key(it)] = true
		}
	})
}
