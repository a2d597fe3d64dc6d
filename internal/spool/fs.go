package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// FS is the part of a file system that a Spool uses. Tests hand in one that fails
// by named operation; everyone else leaves it nil and gets the operating system's.
type FS interface {
	MkdirAll(path string) error
	ReadDir(path string) ([]os.DirEntry, error)
	OpenFile(path string, flag int) (File, error)
	Rename(from, to string) error
	Remove(path string) error
}

// File is an open file of an FS.
type File interface {
	io.Writer
	io.ReaderAt
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// osFS is the operating system's file system.
type osFS struct{}

func (osFS) MkdirAll(path string) error                 { return os.MkdirAll(path, 0o700) }
func (osFS) ReadDir(path string) ([]os.DirEntry, error) { return os.ReadDir(path) }
func (osFS) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFS) Remove(path string) error                   { return os.Remove(path) }

func (osFS) OpenFile(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// writeFileAtomic replaces path in one step: readers see the old content or the new.
func writeFileAtomic(fs FS, path string, data []byte, sync bool) error {
	tmp := path + ".tmp"
	f, err := fs.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fs.Rename(tmp, path)
}

// readAll returns the content of a small file, at most limit bytes.
func readAll(fs FS, path string, limit int64) ([]byte, error) {
	f, err := fs.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", path, size, limit)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}
