// Package self replaces the agent's own binary: a software.Driver of package slots whose
// slots are two executables side by side, and the watchdog that starts one of them.
//
// The watchdog is the binary that was installed, and never replaced while it runs. It
// starts the default; asked to, the other one for once, and if that ends, or was not
// marked good in time, the default again. It knows nothing of health: that is the new
// agent's own judgement, by way of software.Machine.
package self

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster.dev/muster/control/agent/software/slots"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/disk"
)

// What the watchdog tells its child, in the environment.
const (
	EnvSlot = "MUSTER_SLOT"  // the slot that it runs from
	EnvBoot = "MUSTER_BOOT"  // tells this start from others
	EnvDir  = "MUSTER_SLOTS" // where the slots are
)

// File are the variables as JSON; it implements slots.Env.
type File struct {
	Path string
	FS   disk.FS
}

// Load implements slots.Env.
func (f File) Load() (map[string]string, error) {
	b, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	if err := json.Unmarshal(b, &env); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if env == nil {
		return nil, fmt.Errorf("%s: want an object, not null", f.Path)
	}
	return env, nil
}

// Save implements slots.Env.
func (f File) Save(env map[string]string) error {
	b, err := json.Marshal(env)
	if err != nil {
		return err
	}
	return atomicfile.WriteTo(f.FS, f.Path, b, 0o600)
}

// paths in a directory.
func file(dir string, fsys disk.FS) File { return File{filepath.Join(dir, "slots.json"), fsys} }

func binaries(dir string) map[string]string {
	return map[string]string{"a": filepath.Join(dir, "agent-a"), "b": filepath.Join(dir, "agent-b")}
}

// Install makes the directory with a binary as the default, unless it is there.
func Install(ctx context.Context, fsys disk.FS, dir, version string, binary []byte) error {
	if _, err := file(dir, fsys).Load(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := disk.MkdirAll(fsys, dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteTo(fsys, binaries(dir)["a"], binary, 0o700); err != nil {
		return err
	}
	return file(dir, fsys).Save(map[string]string{slots.Default: "a", slots.Version + "a": version})
}

// installed is the variable with the digest of the binary that somebody installed last.
const installed = "muster_installed"

// Adopt is Install with the binary at path, which is the watchdog's own. If somebody has
// put another one there since, as a package manager does, that one becomes the default: it
// goes into the other slot first, so that whatever happens a whole one is started.
func Adopt(ctx context.Context, fsys disk.FS, dir, version, path string) error {
	binary, err := os.Open(path)
	if err != nil {
		return err
	}
	defer binary.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, binary); err != nil {
		return err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	env, err := file(dir, fsys).Load()
	fresh := errors.Is(err, os.ErrNotExist)
	switch {
	case fresh:
		env = map[string]string{slots.Default: "b"}
	case err != nil:
		return err
	case env[installed] == digest:
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := disk.MkdirAll(fsys, dir, 0o700); err != nil {
		return err
	}
	slot := "a"
	if env[slots.Default] == "a" {
		slot = "b"
	}
	delete(env, slots.Once)
	delete(env, slots.Version+slot)
	if !fresh {
		if err := file(dir, fsys).Save(env); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteTo(fsys, binaries(dir)[slot], b, 0o700); err != nil {
		return err
	}
	env[slots.Default], env[slots.Version+slot], env[installed] = slot, version, digest
	return file(dir, fsys).Save(env)
}

// New is the Driver of an agent that a watchdog started. Restart makes the agent end.
func New(dir string, fsys disk.FS, slot, boot string, restart func(ctx context.Context) error) (*slots.Driver, error) {
	return slots.New(slots.Options{Env: file(dir, fsys), Slots: binaries(dir), Running: slot, BootID: boot, Mode: 0o700, Reboot: restart, FS: fsys})
}

// Choose says which slot is next, and clears Once before it says so: whatever becomes of
// that start, the one after it is the default's.
func Choose(env slots.Env) (slot string, trial bool, err error) {
	v, err := env.Load()
	if err != nil {
		return "", false, err
	}
	slot = v[slots.Default]
	if once := v[slots.Once]; once != "" {
		delete(v, slots.Once)
		if err := env.Save(v); err != nil {
			return "", false, err
		}
		if v[slots.Version+once] != "" {
			return once, true, nil
		}
	}
	return slot, false, nil
}

// WatchOptions of Watch.
type WatchOptions struct {
	Dir  string
	Args []string // of the agent
	// Within is by when a new version has to be marked good. Longer than the agent itself
	// waits for that: 0: 15 minutes.
	Within time.Duration
	// Grace is how long an agent has to end when it is asked to; 0: 20 seconds.
	Grace time.Duration
	Log   *slog.Logger
	FS    disk.FS // nil: the operating system's
}

// Watch starts agents until ctx ends; then it ends the one that runs and returns nil.
func Watch(ctx context.Context, o WatchOptions) error {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Within == 0 {
		o.Within = 15 * time.Minute
	}
	if o.Grace == 0 {
		o.Grace = 20 * time.Second
	}
	runtime.LockOSThread() // agents end with the thread that started them
	defer runtime.UnlockOSThread()
	env, failed := file(o.Dir, o.FS), 0
	for ctx.Err() == nil {
		slot, trial, err := Choose(env)
		if err != nil {
			return err
		}
		began := time.Now()
		err = watchOne(ctx, o, env, slot, trial)
		if ctx.Err() != nil {
			return nil
		}
		o.Log.Warn("the agent ended", "slot", slot, "trial", trial, "err", err)
		v, lerr := env.Load()
		if lerr != nil {
			return lerr
		}
		if trial || v[slots.Once] != "" { // it asked for the other one, or the default is next
			continue
		}
		if failed++; time.Since(began) > time.Minute {
			failed = 1
		}
		select {
		case <-time.After(backoff.FullJitter(failed, time.Second, time.Minute)):
		case <-ctx.Done():
		}
	}
	return nil
}

var errNotGood = errors.New("it was not marked good in time")

func watchOne(ctx context.Context, o WatchOptions, env slots.Env, slot string, trial bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, binaries(o.Dir)[slot], o.Args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "WATCHDOG_PID=") // it is the agent that tells systemd that it lives
	})
	cmd.Env = append(cmd.Env, EnvDir+"="+o.Dir, EnvSlot+"="+slot, fmt.Sprintf("%s=%016x", EnvBoot, rand.Uint64()))
	cmd.SysProcAttr = endsWithParent()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = o.Grace
	if trial {
		late := time.AfterFunc(o.Within, func() {
			if v, err := env.Load(); err != nil || v[slots.Default] != slot {
				cancel(errNotGood)
			}
		})
		defer late.Stop()
	}
	o.Log.Info("the agent starts", "slot", slot, "trial", trial)
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
