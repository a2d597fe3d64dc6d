package factoryreset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/disk"
)

// Wipe is what Finish needs.
type Wipe struct {
	Dir string // as in Options
	// AgentDir is the agent's state directory.
	AgentDir string
	// Restore puts back what the host had before; on an error the reset goes on, and what is
	// needed to try again stays. nil: nothing was changed.
	Restore func(ctx context.Context) error
	// Remove are files and directories that the site filled; those that are not there are none.
	Remove []string
	// Keep is as in Options, of AgentDir: what was kept of the former key and of the reset goes
	// with it. Until it has been done, the reset is gone over once more.
	Keep   func(ctx context.Context) error
	Logger *slog.Logger
	FS     disk.FS // nil: the operating system's
}

// Finish does what is left of a reset that has begun, at the start of the process, when
// nothing else runs; done is false if none has, or if the running site is not done with its
// part. Each step may be done twice: after a power cut it begins anew, and the journal goes
// last.
//
//  1. the host's configuration is put back,
//  2. what control wanted, what it made of that and what was not sent is removed,
//  3. the key is exchanged and the certificate removed,
//  4. the journal is removed: the machine is one that registers for the first time, with a
//     key that control knows,
//  5. where another place has it too, that gets the new key and loses the journal.
func Finish(ctx context.Context, w Wipe) (done bool, err error) {
	if w.FS == nil {
		w.FS = disk.OS{}
	}
	j, err := readJournal(w.Dir)
	nextKey := filepath.Join(w.Dir, nextKeyFile)
	if err != nil || j == nil {
		// A cut after the journal went: what is the machine's key is not its next one.
		if b, rerr := os.ReadFile(nextKey); err == nil && rerr == nil && agent.HasKey(w.AgentDir, b) {
			err = removeAll(w.FS, nextKey)
		}
		return false, err
	}
	if !j.Wiping {
		return false, nil
	}
	key, err := os.ReadFile(nextKey)
	if err == nil {
		_, err = agent.ParseKey(key)
	}
	if err != nil {
		return false, fmt.Errorf("factory reset: %s: %w; a reset has begun and can't go on: remove the state directory and register the machine anew", nextKey, err)
	}
	if w.Restore != nil {
		if err := w.Restore(ctx); err != nil {
			if ctx.Err() != nil {
				return false, err
			}
			w.Logger.Error("factory reset: the host is not as it was before; it goes on", "err", err)
		}
	}
	for _, path := range append([]string{agent.BlobDir(w.AgentDir)}, w.Remove...) {
		if err := removeAll(w.FS, path); err != nil {
			return false, fmt.Errorf("factory reset: %w", err)
		}
	}
	if err := agent.Rekey(w.FS, w.AgentDir, key, j.Site.Name); err != nil {
		return false, fmt.Errorf("factory reset: %w", err)
	}
	for _, name := range []string{filepath.Join(w.Dir, journalFile), nextKey} {
		if err := removeAll(w.FS, name); err != nil {
			return false, fmt.Errorf("factory reset: %w", err)
		}
	}
	if w.Keep != nil {
		if err := w.Keep(ctx); err != nil {
			return false, fmt.Errorf("factory reset: keep the site's new key: %w", err)
		}
	}
	w.Logger.Warn("factory reset: done; the machine registers again", "site", j.Site, "request", j.Request)
	return true, nil
}

// removeAll is os.RemoveAll, on disk when it returns.
func removeAll(fsys disk.FS, path string) error {
	err := remove(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return fsys.SyncDir(filepath.Dir(path))
}

func remove(fsys disk.FS, path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		list, err := fsys.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range list {
			if err := remove(fsys, filepath.Join(path, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return fsys.Remove(path)
}
