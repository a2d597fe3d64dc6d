// Package backup puts what control keeps, and nobody could make again, into one archive while
// control runs: the fleet's objects, its CA, the keys and tokens of people and roles, the timeline.
// And it unpacks such an archive, if all of it is there as it was written.
//
// An archive is a tar file in gzip. Its last entry is the manifest, with the digest of every other
// one, so one that was cut off is never taken for a whole one. cmd/internal/control serves it and
// makes a data directory of it.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"muster.dev/muster/internal/disk"
)

// Format of the archives that are made; older ones are read.
const Format = 1

const manifestName = "backup.json"

// Manifest says what an archive is of.
type Manifest struct {
	Format      int       `json:"format"`
	Muster      string    `json:"muster"` // version that made it
	Created     time.Time `json:"created"`
	TrustDomain string    `json:"trustDomain"`
	// ExternalEtcd: the objects are in an etcd of its own, and not in here.
	ExternalEtcd bool `json:"externalEtcd,omitempty"`
	// Files are the SHA-256 of each entry, in hex.
	Files map[string]string `json:"files"`
}

// Part is an entry that is no file of the data directory as it lies there, or may not be read
// as one while it is written.
type Part struct {
	Name  string // in the archive
	Write func(context.Context, io.Writer) error
}

// Source is what an archive is made of.
type Source struct {
	Manifest Manifest // without Files
	// Dir is the data directory. Trees are files and directories in it, which are taken whole but for
	// what Leave says; one that is not there is left out, and one that is a link is followed.
	Dir   string
	Trees []string
	// Leave tells, by the name in Dir, what is made anew and need not be in it.
	Leave func(name string) bool
	Parts []Part
}

// Write makes an archive of a source that goes on being written: of a file that grows it has what
// was there when its turn came.
func Write(ctx context.Context, out io.Writer, s Source) error {
	zipped, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	w := &writer{tar: tar.NewWriter(zipped), m: s.Manifest}
	w.m.Format, w.m.Files = Format, map[string]string{}
	for _, tree := range s.Trees {
		if err := w.tree(ctx, s, tree); err != nil {
			return err
		}
	}
	for _, p := range s.Parts {
		if err := w.part(ctx, s.Dir, p); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	b, err := json.MarshalIndent(w.m, "", "  ")
	if err != nil {
		return err
	}
	if err := w.entry(manifestName, strings.NewReader(string(b)), int64(len(b))); err != nil {
		return err
	}
	return errors.Join(w.tar.Close(), zipped.Close())
}

type writer struct {
	tar *tar.Writer
	m   Manifest
}

func (w *writer) tree(ctx context.Context, s Source, tree string) error {
	root, err := filepath.EvalSymlinks(filepath.Join(s.Dir, tree))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = w.walked(s, tree, root, at, d)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
}

// walked is a file or directory that was found at a place below the root of a tree.
func (w *writer) walked(s Source, tree, root, at string, d fs.DirEntry) error {
	rel, err := filepath.Rel(root, at)
	if err != nil {
		return err
	}
	name := path.Join(tree, filepath.ToSlash(rel))
	switch {
	case s.Leave(name) && d.IsDir():
		return fs.SkipDir
	case s.Leave(name), !d.Type().IsRegular():
		return nil
	}
	return w.file(at, name)
}

func (w *writer) file(at, name string) error {
	f, err := os.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return w.entry(name, f, st.Size())
}

// part goes by way of a file, as an entry begins with its size.
func (w *writer) part(ctx context.Context, dir string, p Part) error {
	f, err := os.CreateTemp(dir, ".backup-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}()
	if err := p.Write(ctx, f); err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return w.entry(p.Name, f, size)
}

func (w *writer) entry(name string, r io.Reader, size int64) error {
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.m.Created})
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(w.tar, h), r, size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if name != manifestName {
		w.m.Files[name] = hexOf(h)
	}
	return nil
}

func hexOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

const (
	// maxEntries and maxManifest bound what a file that is no backup may cost.
	maxEntries  = 100_000
	maxManifest = 64 << 20
)

// Read verifies an archive and unpacks it into a directory that is not there yet; none if it is
// empty. The directory is of no use when it fails.
func Read(in io.Reader, into string) (*Manifest, error) {
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("not a backup: %w", err)
	}
	if into != "" {
		if err := disk.MkdirAll(disk.OS{}, into, 0o700); err != nil {
			return nil, err
		}
	}
	r, found := tar.NewReader(unzipped), map[string]string{}
	for {
		head, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, errors.New("the backup is cut off: its manifest is missing")
		case err != nil:
			return nil, fmt.Errorf("damaged: %w", err)
		case head.Typeflag != tar.TypeReg || !filepath.IsLocal(head.Name) || path.Clean(head.Name) != head.Name:
			return nil, fmt.Errorf("not a backup: it has an entry %.100q", head.Name)
		case found[head.Name] != "" || len(found) == maxEntries:
			return nil, fmt.Errorf("not a backup: %.100q is in it twice, or there are more than %d entries", head.Name, maxEntries)
		case head.Name == manifestName:
			m, err := finish(r, found)
			if err != nil {
				return nil, err
			}
			if _, err := io.Copy(io.Discard, unzipped); err != nil { // which compares gzip's own sum
				return nil, fmt.Errorf("damaged: %w", err)
			}
			return m, nil
		}
		h := sha256.New()
		if err := unpack(into, head.Name, io.TeeReader(r, h)); err != nil {
			return nil, fmt.Errorf("%s: %w", head.Name, err)
		}
		found[head.Name] = hexOf(h)
	}
}

// finish reads the manifest, compares what was found with it, and wants the end after it.
func finish(r *tar.Reader, found map[string]string) (*Manifest, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("not a backup: its manifest: %w", err)
	}
	if m.Format < 1 || m.Format > Format {
		return nil, fmt.Errorf("the backup was made by Muster %.40q in format %d, and this one reads 1 to %d: restore it with that version", m.Muster, m.Format, Format)
	}
	for name, digest := range m.Files {
		if found[name] != digest {
			return nil, fmt.Errorf("damaged: %.100q is not what was written", name)
		}
	}
	if len(found) != len(m.Files) {
		return nil, errors.New("damaged: it has entries that its manifest does not name")
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.New("damaged: something follows its manifest")
	}
	return &m, nil
}

func unpack(into, name string, r io.Reader) error {
	if into == "" {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	at := filepath.Join(into, filepath.FromSlash(name))
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(at), 0o700); err != nil {
		return err
	}
	f, err := disk.OS{}.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Sync(), f.Close(), disk.OS{}.SyncDir(filepath.Dir(at)))
}
