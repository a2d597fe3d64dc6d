package apiserver

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Snapshot writes all objects as they are at one moment, in etcd's own form. An external etcd has
// its own ways; see Embedded.
func (s *Server) Snapshot(ctx context.Context, w io.Writer) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.embedded}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return err
}

// Embedded says whether etcd runs in this process.
func (s *Server) Embedded() bool { return s.embedded != "" }

// revisionsAhead is by how much a restored etcd is ahead of what it was at the snapshot: more than
// could be written since. So no client takes an object for older than what it knew, and all watches
// begin anew.
const revisionsAhead = 1_000_000_000

// Restore makes the directory of an API server, whose etcd holds what a file of Snapshot does.
func Restore(dir, file string) error {
	cfg := etcdConfig(filepath.Join(dir, "etcd"))
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, Name: cfg.Name, OutputDataDir: cfg.Dir, InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken,
		PeerURLs: []string{cfg.AdvertisePeerUrls[0].String()}, RevisionBump: revisionsAhead, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restore etcd's data: %w", err)
	}
	return nil
}
