package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"muster.dev/muster/internal/disk"
)

// maxSocketPath is the longest path of a unix socket on Linux.
const maxSocketPath = 107

// StartEtcd runs an etcd in this process and returns where it can be reached, and what ends
// it; it is exported for test clusters. It listens on unix sockets in a
// directory that only this user can enter: whoever can talk to etcd reads every
// secret, so there is no TCP port.
func StartEtcd(ctx context.Context, dir string, log *slog.Logger) (endpoint string, stop func(), err error) {
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return "", nil, err
	}
	sockets, cleanup, err := socketDir(dir)
	if err != nil {
		return "", nil, err
	}
	client := filepath.Join(sockets, "client.sock")
	peer := filepath.Join(sockets, "peer.sock")
	for _, s := range []string{client, peer} {
		_ = os.Remove(s) // left by a kill -9
	}
	cfg := etcdConfig(dir)
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: client}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: peer}}
	last := &zapToSlog{log: log.With("part", "etcd"), shared: new(zapShared)}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(last, zap.WithFatalHook(zapcore.WriteThenPanic)))
	e, err := open(cfg)
	if err != nil {
		cleanup()
		if said := last.fatal(); said != nil {
			err = said // the whole of what the panic only began to say
		}
		return "", nil, fmt.Errorf("etcd in %s: %w; restore the directory from a backup, or move it away to begin with an empty fleet", dir, err)
	}
	stop = func() {
		last.shared.ending.Store(true) // that its listeners are closed is no error now
		e.Close()
		cleanup()
	}
	select {
	case <-e.Server.ReadyNotify():
		return "unix://" + client, stop, nil
	case err := <-e.Err():
		stop()
		return "", nil, fmt.Errorf("etcd in %s: %w", dir, err)
	case <-time.After(time.Minute):
		stop()
		return "", nil, errors.New("etcd was not ready within a minute")
	case <-ctx.Done():
		stop()
		return "", nil, ctx.Err()
	}
}

// etcdConfig is that of an etcd below dir, but for where it listens.
func etcdConfig(dir string) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "muster"
	cfg.Dir = filepath.Join(dir, "data")
	// What is advertised must be HOST:PORT; with one member nobody asks.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	// The advertised peer address is part of the cluster's identity, so it must not
	// depend on where the data directory lies; nobody dials it.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = "muster=http://localhost:2380"
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = "5m"
	cfg.QuotaBackendBytes = 4 << 30
	cfg.SnapshotCount = 10_000
	return cfg
}

// open starts etcd. On damaged files etcd panics or wants to end the process.
func open(cfg *embed.Config) (e *embed.Etcd, err error) {
	// On a damaged database it does so in a goroutine of its own, where nothing can
	// catch it.
	name := filepath.Join(cfg.Dir, "member", "snap", "db")
	if _, err := os.Stat(name); err == nil {
		db, err := bbolt.Open(name, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return nil, fmt.Errorf("damaged files: %s: %w", name, err)
		}
		if err := db.Close(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged files: %v", r)
		}
	}()
	return embed.StartEtcd(cfg)
}

// socketDir is dir itself, or a short temporary one if paths in dir are too long
// for a socket.
func socketDir(dir string) (string, func(), error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	if len(filepath.Join(abs, "client.sock")) <= maxSocketPath {
		return abs, func() {}, nil
	}
	tmp, err := os.MkdirTemp("", "muster-etcd-")
	if err != nil {
		return "", nil, err
	}
	return tmp, func() { _ = os.RemoveAll(tmp) }, nil
}
