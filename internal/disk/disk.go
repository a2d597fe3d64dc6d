// Package disk is the file operations on which durability depends, as an interface
// of which there are two: OS, and the disk of internal/testkit/faultdisk, which
// fills up, fails and loses its power as a test says.
//
// Whoever promises that something outlives a power cut (spool, atomicfile) does its
// writing through an FS. It decides nothing: what is synced and when, callers say.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a file system. Safe for concurrent use. Errors are those of package os.
type FS interface {
	Mkdir(path string, perm fs.FileMode) error
	ReadDir(path string) ([]fs.DirEntry, error)
	OpenFile(path string, flag int, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes the names in a directory survive power loss: what was made,
	// renamed and removed in it. A file's own Sync does not promise that.
	SyncDir(path string) error
	// Space returns the bytes that are free for us and those of the whole file
	// system. The error errors.ErrUnsupported means that nobody knows.
	Space(path string) (free, total int64, err error)
}

// File is an open file of an FS.
type File interface {
	io.Writer
	io.ReaderAt
	Size() (int64, error)
	Truncate(size int64) error
	Chmod(perm fs.FileMode) error
	Sync() error
	Close() error
}

// MkdirAll makes a directory and those above it that are missing, so that they
// survive power loss.
func MkdirAll(fsys FS, path string, perm fs.FileMode) error {
	err := fsys.Mkdir(path, perm)
	if errors.Is(err, fs.ErrNotExist) {
		if err = MkdirAll(fsys, filepath.Dir(path), perm); err != nil {
			return err
		}
		err = fsys.Mkdir(path, perm)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// OS is the operating system's file system.
type OS struct{}

// Mkdir implements FS.
func (OS) Mkdir(path string, perm fs.FileMode) error { return os.Mkdir(path, perm) }

// ReadDir implements FS.
func (OS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// Space implements FS.
func (OS) Space(path string) (free, total int64, err error) { return space(path) }

// SyncDir implements FS.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// OpenFile implements FS.
func (OS) OpenFile(path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

// Size implements File.
func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
