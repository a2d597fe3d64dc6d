package software

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/delivery"
)

// Source fetches what the signed repository has: its Fetch is a Machine's Options.Fetch.
type Source struct {
	Component    string
	Architecture string // of the node, as in runtime.GOARCH
	Trust        *bundle.Trust
	Fetcher      delivery.Fetcher
	// Dir is where files lie until they are written; it is the Source's alone.
	Dir string
	// Running opens what runs, for deltas; nil: whole files are fetched.
	Running func(ctx context.Context) (version string, image *os.File, err error)
	Log     *slog.Logger
}

// Fetch asks for the newest signatures, or goes by those that it has while nobody can be
// reached, and returns a verified file. What control wants and nobody signed is refused
// with a *bundle.Refused.
func (s *Source) Fetch(ctx context.Context, w Wanted, percent func(int)) (string, error) {
	refused := (*bundle.Refused)(nil)
	if err := s.Trust.Refresh(ctx, &s.Fetcher); errors.As(err, &refused) {
		return "", err
	} else if err != nil {
		if kerr := s.Trust.Refresh(ctx, s.Trust.Kept()); kerr != nil {
			return "", err
		}
	}
	t, err := s.Trust.Target(w.Target, s.Component, w.Version)
	if err != nil {
		return "", err
	}
	switch {
	case t.Architecture != "any" && t.Architecture != s.Architecture:
		err = fmt.Errorf("it was signed for %s, and this is %s", t.Architecture, s.Architecture)
	case t.Digest != w.Digest || t.Size != w.Size:
		err = fmt.Errorf("the SoftwareVersion says %.12s… of %d bytes, and %.12s… of %d bytes was signed", w.Digest, w.Size, t.Digest, t.Size)
	}
	if err != nil {
		return "", &bundle.Refused{What: "target " + t.Name, Err: err, Remedy: "correct the SoftwareVersion"}
	}
	path := filepath.Join(s.Dir, t.Digest)
	if err := s.tidy(t.Digest); err != nil {
		return "", err
	}
	if holds(path, t) {
		return path, nil
	}
	if got, err := s.delta(ctx, t, path); got || err != nil {
		return path, err
	}
	f := s.Fetcher
	f.Progress = func(have, of int64) { percent(int(have * 100 / of)) }
	return path, f.File(ctx, t.Digest, t.Size, path)
}

// delta tells whether it could be had as one. Why it could not is no error, for there is the
// whole file, but where that could not be had either just now.
func (s *Source) delta(ctx context.Context, t bundle.Target, path string) (bool, error) {
	if s.Running == nil || s.Fetcher.Begun(path) {
		return false, nil
	}
	version, image, err := s.Running(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // what runs can't be read
	}
	defer image.Close()
	old, ok := s.Trust.Find(s.Component, version, s.Architecture)
	if !ok {
		return false, nil
	}
	err = s.Fetcher.Delta(ctx, old.Digest, image, old.Size, t.Digest, t.Size, path)
	switch {
	case err == nil:
		return true, nil
	case delivery.Refused(err):
		return false, err
	case !errors.Is(err, delivery.ErrNotThere) && s.Log != nil:
		s.Log.Warn("the whole file is fetched, for its delta can't be used", "component", s.Component, "err", err)
	}
	return false, nil
}

// tidy removes what was fetched for other versions.
func (s *Source) tidy(digest string) error {
	fsys := s.Fetcher.FS
	if fsys == nil {
		fsys = disk.OS{}
	}
	if err := disk.MkdirAll(fsys, s.Dir, 0o700); err != nil {
		return err
	}
	entries, err := fsys.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), digest) {
			if err := fsys.Remove(filepath.Join(s.Dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func holds(path string, t bundle.Target) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return err == nil && n == t.Size && hex.EncodeToString(sum.Sum(nil)) == t.Digest
}
