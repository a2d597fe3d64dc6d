package bucket

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/thanos-io/objstore"

	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
	"muster.dev/muster/internal/software/delivery"
)

// A repository in a bucket, over a cache: a site trusts it and gets its file.
func TestRepositoryInABucket(t *testing.T) {
	b := New(objstore.NewPrefixedBucket(objstore.NewInMemBucket(), "muster"))
	key := func() []signature.Signer {
		pem, err := publish.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		s, err := publish.ReadKey(pem)
		if err != nil {
			t.Fatal(err)
		}
		return []signature.Signer{s}
	}
	repo := publish.Repository{Store: b, Keys: publish.Keys{Root: key(), Targets: key(), Snapshot: key(), Timestamp: key()}}
	root, err := repo.Init(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	image := strings.Repeat("image ", 1000)
	want, err := repo.Add(t.Context(), "os/1.0.0", bundle.About{Component: "os", Version: "1.0.0", Architecture: "any"}, strings.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := delivery.NewCache(delivery.CacheOptions{Dir: filepath.Join(t.TempDir(), "cache"), Upstream: b})
	if err != nil {
		t.Fatal(err)
	}
	regional := httptest.NewServer(cache)
	defer regional.Close()
	f := &delivery.Fetcher{URL: regional.URL, Client: regional.Client()}
	trust, err := bundle.Open(bundle.Options{Dir: t.TempDir(), Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Refresh(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if got, err := trust.Target("os/1.0.0", "os", "1.0.0"); err != nil || got != want {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	if err := f.File(t.Context(), want.Digest, want.Size, filepath.Join(t.TempDir(), "image")); err != nil {
		t.Fatal(err)
	}
	r, size, err := b.Open(t.Context(), delivery.BlobPath+want.Digest, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if rest, err := io.ReadAll(r); err != nil || size != int64(len(image)) || !bytes.Equal(rest, []byte(image[10:])) {
		t.Errorf("from 10 on: %d bytes of %d, %v", len(rest), size, err)
	}
	if _, _, err := b.Open(t.Context(), "/nothing", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
}

func TestOpen(t *testing.T) {
	for _, tc := range []struct{ typ, config, want string }{
		{"s3", "{bucket: b, endpoint: 's3.example:443', access_key: a, secret_key: s}", ""},
		{"s3", "{bucket: b, endpoint: 's3.example:443', acces_key: a}", "acces_key"},
		{"ftp", "", "want s3, gcs or azure"},
	} {
		_, err := Open(t.Context(), Options{Type: tc.typ, Config: []byte(tc.config)})
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s %s: %v, want %q", tc.typ, tc.config, err, tc.want)
		}
	}
}
