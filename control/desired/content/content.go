// Package content is where control/desired keeps what sites were given beyond its process: a
// directory, or a bucket of an object store for a control that has no disk of its own. Names
// are digests, and what is not what its name says is not handed out. It knows nothing of what
// it keeps, and of who needs it.
package content

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/software/bucket"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/wire"
)

// maxBytes of one blob, which no site would take more of.
const maxBytes = 64 << 20

// Dir keeps it in a directory. Safe for concurrent use for different digests.
type Dir struct{ dir *holdings.Dir }

var _ desired.Content = Dir{}

// Open makes the directory, for this user alone.
func Open(path string) (Dir, error) {
	d, err := holdings.Open(path, 0o600, true)
	return Dir{d}, err
}

// Put implements desired.Content.
func (d Dir) Put(_ context.Context, digest string, b []byte) error { return d.dir.Write(digest, b) }

// Get implements desired.Content.
func (d Dir) Get(_ context.Context, digest string) ([]byte, error) {
	b, err := d.dir.Read(digest)
	if errors.Is(err, holdings.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return b, err
}

// Remove implements desired.Content.
func (d Dir) Remove(_ context.Context, digest string) error { return d.dir.Remove(digest) }

// Each implements desired.Content. It is called before anything is put.
func (d Dir) Each(_ context.Context, fn func(digest string)) error {
	return d.dir.Each(func(digest string, _ fs.FileInfo) { fn(digest) })
}

// folder of a bucket in which it is.
const folder = "desired/"

// Bucket keeps it in a folder of a bucket, which no other fleet may use: whatever this one
// does not know is removed after a while. Safe for concurrent use.
type Bucket struct{ B *bucket.Bucket }

var _ desired.Content = Bucket{}

// Put implements desired.Content.
func (b Bucket) Put(ctx context.Context, digest string, content []byte) error {
	return b.B.Put(ctx, folder+digest, bytes.NewReader(content))
}

// Get implements desired.Content.
func (b Bucket) Get(ctx context.Context, digest string) ([]byte, error) {
	out, err := b.B.Metadata(ctx, folder+digest, maxBytes)
	if err == nil && wire.DigestOf(out) != digest {
		err = fmt.Errorf("object %s%s has other content than its name says: %w", folder, digest, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Remove implements desired.Content.
func (b Bucket) Remove(ctx context.Context, digest string) error {
	return b.B.Delete(ctx, folder+digest)
}

// Each implements desired.Content.
func (b Bucket) Each(ctx context.Context, fn func(digest string)) error {
	return b.B.Each(ctx, folder, func(name string) {
		if digest := strings.TrimPrefix(name, folder); holdings.IsDigest(digest) {
			fn(digest)
		}
	})
}
