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
	"muster.dev/muster/internal/testkit/objectstore"
)

// A repository in a bucket, over a cache: a site trusts it and gets its file.
func TestRepositoryInABucket(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		testRepository(t, New(objstore.NewPrefixedBucket(objstore.NewInMemBucket(), "muster")))
	})
	for name, start := range objectstore.All {
		t.Run(name, func(t *testing.T) {
			b, err := Open(t.Context(), Options{Type: name, Prefix: "muster", Config: start(t, "acme")})
			if err != nil {
				t.Fatal(err)
			}
			testRepository(t, b)
		})
	}
}

// What is wrong with a bucket is said with the first object, by its name.
func TestBucketThatCannotBeUsed(t *testing.T) {
	server := objectstore.StartS3(t)
	server.Bucket(t, "acme")
	for name, tc := range map[string]struct {
		config []byte
		want   string
	}{
		"a wrong key":             {server.Config("acme", "muster", "another-secret"), "signature"},
		"a key of nobody":         {server.Config("acme", "nobody", "another-secret"), "access key"},
		"a bucket that is not":    {server.Config("emca", "muster", "muster-secret"), "bucket does not exist"},
		"a server that is not":    {[]byte("{bucket: acme, endpoint: '127.0.0.1:1', region: us-east-1, insecure: true, access_key: a, secret_key: b, max_retries: 1}"), "refused"},
		"a server that wants TLS": {[]byte(strings.Replace(string(server.Config("acme", "muster", "muster-secret")), "insecure: true", "insecure: false", 1)), "HTTPS"},
	} {
		b, err := Open(t.Context(), Options{Type: "s3", Config: tc.config})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"put": b.Put(t.Context(), "1.root.json", strings.NewReader("{}")),
			"get": func() error { _, err := b.Metadata(t.Context(), "1.root.json", 100); return err }(),
		} {
			t.Log(err)
			if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "object 1.root.json") || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(tc.want)) {
				t.Errorf("%s: %s: %v; want the object named, and %q", name, what, err, tc.want)
			}
		}
	}
}

func testRepository(t *testing.T, b *Bucket) {
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
