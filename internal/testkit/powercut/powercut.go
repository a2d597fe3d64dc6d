// Package powercut runs a part of a test in a process whose power is cut, and leaves on
// disk what the process had synced by then. It is for what doesn't write through
// disk.FS, such as the libraries that Muster embeds; internal/testkit/faultdisk is for
// what does, and can do more.
//
// The process runs under ptrace. Each fsync and fdatasync is seen as it begins: what the
// file holds at that moment is what a power cut leaves of it, once the call succeeds;
// and of a directory, the names that it has. Nothing else survives: no write, no name, no
// rename and no removal that was not synced. That is less than most file systems keep,
// and what POSIX promises. sync, syncfs, msync and O_SYNC are not known, so what relies on
// them is taken for lost.
package powercut

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// env names, in the process whose power is cut, the directory.
const env = "MUSTER_TEST_POWERCUT"

// Run runs work in a process of its own, which ends without a word when work returns.
// After it, dir holds what survived; what dir held before counts as synced. Run runs the
// test anew in the other process, up to this call, with the same dir: so it comes before
// whatever must not be done twice, and at most once in a test. What work finds wrong it
// says with t, as ever. The test must not be parallel.
func Run(t *testing.T, dir string, work func(dir string)) {
	t.Helper()
	if dir := os.Getenv(env); dir != "" {
		if err := tellOfSyncs(); err != nil {
			t.Fatalf("powercut: %v", err)
		}
		work(dir)
		if !t.Failed() {
			cut()
		}
		t.FailNow()
	}
	out, err := trace(t.Name(), dir)
	if err != nil {
		t.Fatalf("powercut: %v\n%s", err, bytes.TrimSpace(out))
	}
}

// node is a file or a directory as a power cut leaves it.
type node struct {
	perm  os.FileMode
	dir   bool
	data  []byte
	names map[string]entry
	begun int // of the syncs, which began when it was like this
	// open keeps the number of the file from being given to another.
	open *os.File
}

type entry struct {
	id  id
	dir bool
}

// id is what a file is, whatever its names are.
type id struct{ dev, ino uint64 }

// build writes the node and what is below it.
func build(path string, n *node, all map[id]*node) error {
	if !n.dir {
		return os.WriteFile(path, n.data, n.perm)
	}
	if err := os.Mkdir(path, n.perm|0o700); err != nil && !os.IsExist(err) {
		return err
	}
	for name, e := range n.names {
		of := all[e.id]
		if of == nil { // its name was synced, and nothing of it
			of = &node{perm: 0o700, dir: e.dir}
		}
		if err := build(filepath.Join(path, name), of, all); err != nil {
			return err
		}
	}
	return nil
}
