package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fileName is a pattern for os.CreateTemp: of a blob its digest, by which it is known again;
// what a delta is made of its name does not say.
func fileName(path string) string {
	if digest, ok := strings.CutPrefix(path, BlobPath); ok {
		return digest + "-*"
	}
	return "file-*"
}

// leftFile is a blob that an earlier process left, perhaps half of it.
type leftFile struct {
	*file
	name string
}

// left takes what an earlier process left into account, the newest first and no more than
// there is room for, and removes the rest. None is served before adopt has read it; who asks
// for one until then waits.
func (c *Cache) left() ([]leftFile, error) {
	entries, err := os.ReadDir(c.o.Dir)
	if err != nil {
		return nil, err
	}
	var out []leftFile
	for _, e := range entries {
		name := filepath.Join(c.o.Dir, e.Name())
		digest, _, _ := strings.Cut(e.Name(), "-")
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && digestForm.MatchString(digest) {
			out = append(out, leftFile{&file{path: BlobPath + digest, reserved: info.Size(), used: info.ModTime(), changed: make(chan struct{})}, name})
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b leftFile) int { return b.used.Compare(a.used) })
	var total int64
	return slices.DeleteFunc(out, func(l leftFile) bool {
		if c.files[l.path] != nil || total+l.reserved > c.o.MaxBytes {
			_ = os.Remove(l.name) // it is tried again with the next start
			return true
		}
		total += l.reserved
		c.files[l.path] = l.file
		return false
	}), nil
}

// adopt reads each file and serves those that are what their name says; the others are
// fetched if somebody waits for them.
func (c *Cache) adopt(files []leftFile) {
	for _, l := range files {
		in, size, ok := l.read()
		if ok {
			l.mu.Lock()
			l.have = size
			l.mu.Unlock()
			l.begin(in, size)
			l.finish(nil)
			continue
		}
		_ = os.Remove(l.name)
		c.mu.Lock()
		l.reserved = 0
		if l.users == 0 {
			delete(c.files, l.path)
			c.mu.Unlock()
			continue
		}
		c.fetches++
		c.stats.Asked++
		c.mu.Unlock()
		go c.fetch(l.file)
	}
}

// read opens the file if it is what its name says.
func (l leftFile) read() (in *os.File, size int64, ok bool) {
	in, err := os.Open(l.name)
	if err != nil {
		return nil, 0, false
	}
	sum := sha256.New()
	if size, err = io.Copy(sum, in); err != nil || BlobPath+hex.EncodeToString(sum.Sum(nil)) != l.path {
		_ = in.Close()
		return nil, 0, false
	}
	return in, size, true
}
