package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxSocketPath is the longest path of a unix socket on Linux.
const maxSocketPath = 107

// startEtcd runs an etcd in this process. It listens on unix sockets in a
// directory that only this user can enter: whoever can talk to etcd reads every
// secret, so there is no TCP port.
func startEtcd(ctx context.Context, dir string) (endpoint string, stop func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
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
	cfg := embed.NewConfig()
	cfg.Name = "muster"
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls = []url.URL{{Scheme: "unix", Path: client}}
	// What is advertised must be HOST:PORT; with one member nobody asks.
	cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Path: peer}}
	// The advertised peer address is part of the cluster's identity, so it must not
	// depend on where the data directory lies; nobody dials it.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = "muster=http://localhost:2380"
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = "5m"
	cfg.QuotaBackendBytes = 4 << 30
	cfg.SnapshotCount = 10_000
	level := zap.NewAtomicLevelAt(zapcore.ErrorLevel)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapcore.NewCore(
		zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(os.Stderr), level)))
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		cleanup()
		return "", nil, fmt.Errorf("etcd in %s: %w; if its files are damaged, restore control/ from a backup", dir, err)
	}
	stop = func() {
		level.SetLevel(zapcore.FatalLevel) // that its listeners are closed is no error now
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
