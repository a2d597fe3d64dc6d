// Package bucket keeps what the centre has for sites in an object store (S3 and what
// speaks like it, Google Cloud Storage, Azure), for installations whose bundles outgrow a
// directory, or whose control moves from machine to machine: it is the Store of
// internal/software/bundle/publish and the Upstream of a delivery.Cache, and what sites were
// given is kept in one (control/desired/content). It knows nothing of what it keeps.
package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/go-kit/log"
	"github.com/minio/minio-go/v7"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/azure"
	"github.com/thanos-io/objstore/providers/gcs"
	"github.com/thanos-io/objstore/providers/s3"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"gopkg.in/yaml.v2"

	"muster.dev/muster/internal/software/delivery"
)

// Options of Open.
type Options struct {
	Type   string // s3, gcs or azure
	Prefix string // of all names; empty: none
	// Config in YAML, with the fields that Thanos and Cortex give the type: bucket,
	// endpoint, access_key and so on. Unknown fields are errors.
	Config []byte
	// Transport wraps the HTTP transport; nil: as it is.
	Transport func(http.RoundTripper) http.RoundTripper
}

// Bucket implements publish.Store and delivery.Upstream. Safe for concurrent use.
type Bucket struct {
	b   objstore.Bucket
	typ string // "": of the library
}

// keys are the fields of the config that say who asks, by type.
var keys = map[string]string{
	"s3":    "access_key and secret_key",
	"gcs":   "service_account",
	"azure": "storage_account and storage_account_key, or storage_connection_string",
}

// explained is an error in a line that names the fields to look at, where a server refused who
// asks, or to let them do it; any other is as it was.
func explained(typ string, err error) error {
	var (
		amazon    minio.ErrorResponse
		google    *googleapi.Error
		token     *oauth2.RetrieveError
		microsoft *azcore.ResponseError
		code      int
		said      string
	)
	switch {
	case errors.As(err, &amazon):
		code, said = amazon.StatusCode, amazon.Code+": "+amazon.Message
	case errors.As(err, &google):
		code, said = google.Code, cmp.Or(google.Message, google.Body)
	case errors.As(err, &token): // whatever is wrong with it is wrong with who asks
		code, said = http.StatusUnauthorized, "no token: "+cmp.Or(token.ErrorDescription, token.ErrorCode, string(token.Body))
	case errors.As(err, &microsoft):
		code, said = microsoft.StatusCode, microsoft.ErrorCode
	}
	if keys[typ] == "" || code != http.StatusUnauthorized && code != http.StatusForbidden {
		return err
	}
	return fmt.Errorf("refused with %d, %s; config: %s must be of somebody who may read, write, delete and list there", code, strings.Join(strings.Fields(said), " "), keys[typ])
}

// Open makes no connection; a wrong key is found out with the first object.
func Open(ctx context.Context, o Options) (*Bucket, error) {
	const component = "muster"
	var b objstore.Bucket
	var err error
	quiet, typ := log.NewNopLogger(), strings.ToLower(o.Type)
	switch typ {
	case "s3":
		b, err = s3.NewBucket(quiet, o.Config, component, o.Transport)
	case "gcs":
		b, err = gcs.NewBucket(ctx, quiet, o.Config, component, o.Transport)
	case "azure":
		b, err = azure.NewBucket(quiet, o.Config, component, o.Transport)
	default:
		return nil, fmt.Errorf("type: %q is no object store; want s3, gcs or azure", o.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", o.Type, explained(typ, err))
	}
	return &Bucket{objstore.NewPrefixedBucket(b, o.Prefix), typ}, nil
}

// OpenFile is Open with what stands in a YAML file: type, config and prefix.
func OpenFile(ctx context.Context, path string) (*Bucket, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f struct {
		Type   string        `yaml:"type"`
		Prefix string        `yaml:"prefix"`
		Config yaml.MapSlice `yaml:"config"`
	}
	if err := yaml.UnmarshalStrict(b, &f); err != nil {
		return nil, fmt.Errorf("%s: %w; want type, prefix and config, as Thanos has them", path, err)
	}
	o := Options{Type: f.Type, Prefix: f.Prefix}
	if o.Config, err = yaml.Marshal(f.Config); err != nil {
		return nil, fmt.Errorf("%s: config: %w", path, err)
	}
	out, err := Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// New is over a bucket of the library.
func New(b objstore.Bucket) *Bucket { return &Bucket{b: b} }

func (b *Bucket) error(name string, err error) error {
	if err != nil && b.b.IsObjNotFoundErr(err) {
		return fmt.Errorf("object %s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("object %s: %w", name, explained(b.typ, err))
	}
	return nil
}

// Get implements publish.Store.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := b.b.Get(ctx, name)
	return r, b.error(name, err)
}

// Put implements publish.Store.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader) error {
	return b.error(name, b.b.Upload(ctx, name, r))
}

// Delete removes an object, if it is there.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := b.error(name, b.b.Delete(ctx, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Each calls fn with the name of each object in a folder, whose name ends in a slash, and in
// those below it.
func (b *Bucket) Each(ctx context.Context, folder string, fn func(name string)) error {
	return b.error(folder, b.b.Iter(ctx, folder, func(name string) error {
		fn(name)
		return nil
	}, objstore.WithRecursiveIter()))
}

// Metadata implements delivery.Upstream and bundle.Source.
func (b *Bucket) Metadata(ctx context.Context, name string, most int64) ([]byte, error) {
	r, err := b.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(out)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return out, b.error(name, err)
}

// Open implements delivery.Upstream.
func (b *Bucket) Open(ctx context.Context, path string, from int64) (io.ReadCloser, int64, error) {
	name := strings.TrimPrefix(path, "/")
	a, err := b.b.Attributes(ctx, name)
	if err != nil {
		return nil, 0, b.error(name, err)
	}
	if from >= a.Size {
		return io.NopCloser(strings.NewReader("")), a.Size, nil
	}
	r, err := b.b.GetRange(ctx, name, from, a.Size-from)
	return r, a.Size, b.error(name, err)
}

var _ delivery.Upstream = (*Bucket)(nil)
