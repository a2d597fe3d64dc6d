// Package journal keeps on disk what is large and changes a little at a time: a file, written
// whole now and then, and beside it the changes since. A change costs its own bytes and a
// sync, not those of the file; a site's flash is worn by what is written.
//
// It decides nothing about what is in either: who uses it replays the changes. A reader that
// knows the file alone, such as an earlier version, has an older state, and what it writes
// makes the changes beside it void.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// Suffix of the file with the changes.
const Suffix = ".changes"

// minChanges is how many bytes of changes a small file may have before it is written whole.
const minChanges = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// File is a file with its changes. Not safe for concurrent use.
type File struct {
	fsys disk.FS
	name string
	perm fs.FileMode

	digest  [sha256.Size]byte // of the file, to which the changes belong
	size    int64             // of the file
	changes int64             // bytes of changes that count
	whole   bool              // nothing may be appended: the next write is of the whole
}

// New returns the file of that name, whose directory must be there. Load comes before Write,
// else what is there is replaced.
func New(fsys disk.FS, name string, perm fs.FileMode) *File {
	return &File{fsys: fsys, name: name, perm: perm, whole: true}
}

// Load reads the file and, in order, its changes; they alias what was read. Without the file
// the error is fs.ErrNotExist.
func (f *File) Load() (whole []byte, changes [][]byte, err error) {
	whole, err = os.ReadFile(f.name)
	if err != nil {
		return nil, nil, err
	}
	log, err := os.ReadFile(f.name + Suffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	f.digest, f.size, f.whole = sha256.Sum256(whole), int64(len(whole)), false
	changes, f.changes = parse(f.digest, log)
	return whole, changes, nil
}

// Write makes a change last: it survives a power cut once Write has returned nil, and after an
// error it may be there or not. The change, which has no line break in it, is appended, unless
// it is nil, the changes have grown as large as the file, or an earlier Write failed: then the
// file is replaced by what whole returns, which is the state with the change.
func (f *File) Write(change []byte, whole func() ([]byte, error)) error {
	line := f.line(change)
	if change == nil || f.whole || f.changes+int64(len(line)) > max(f.size, minChanges) {
		return f.replace(whole)
	}
	if err := f.append(line); err != nil {
		f.whole = true
		return fmt.Errorf("write %s: %w", f.name+Suffix, err)
	}
	f.changes += int64(len(line))
	return nil
}

func (f *File) replace(whole func() ([]byte, error)) error {
	b, err := whole()
	if err != nil {
		return err
	}
	f.whole = true
	if err := atomicfile.WriteTo(f.fsys, f.name, b, f.perm); err != nil {
		return err
	}
	f.digest, f.size, f.changes, f.whole = sha256.Sum256(b), int64(len(b)), 0, false
	_ = f.fsys.Remove(f.name + Suffix) // void anyhow: they are of another file
	return nil
}

func (f *File) append(line []byte) (err error) {
	log, err := f.fsys.OpenFile(f.name+Suffix, os.O_WRONLY|os.O_CREATE|os.O_APPEND, f.perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	size, err := log.Size()
	if err != nil {
		return err
	}
	if size < f.changes {
		return errors.New("it was changed by somebody else")
	}
	if size > f.changes { // torn, or of an earlier file
		if err := log.Truncate(f.changes); err != nil {
			return err
		}
	}
	if _, err := log.Write(line); err != nil {
		return err
	}
	if err := log.Sync(); err != nil {
		return err
	}
	if f.changes > 0 {
		return nil
	}
	if err := log.Chmod(f.perm); err != nil { // whatever the umask says
		return err
	}
	return f.fsys.SyncDir(filepath.Dir(f.name)) // its name
}

// line is a change as it stands in the file: a checksum of it, the change, and of what stands
// before: the file that it changes.
func (f *File) line(change []byte) []byte {
	line := make([]byte, 0, len(change)+10)
	line = append(line, checksum(f.digest, change)...)
	line = append(append(line, ' '), change...)
	return append(line, '\n')
}

func checksum(digest [sha256.Size]byte, change []byte) string {
	sum := crc32.Update(crc32.Checksum(digest[:], castagnoli), castagnoli, change)
	return hex.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// parse returns the changes of the file with that digest, up to the first that is torn, and
// how many bytes they take.
func parse(digest [sha256.Size]byte, log []byte) (changes [][]byte, size int64) {
	for {
		line, rest, whole := bytes.Cut(log[size:], []byte("\n"))
		sum, change, ok := bytes.Cut(line, []byte(" "))
		if !whole || !ok || string(sum) != checksum(digest, change) {
			return changes, size
		}
		changes, size = append(changes, change), int64(len(log)-len(rest))
	}
}
