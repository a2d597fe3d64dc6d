package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/control/apiserver"
	"muster.dev/muster/control/backup"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/obs"
	"muster.dev/muster/internal/timeline"
)

// Entries of a backup that are no files of the data directory as they lie there.
const (
	objectsEntry  = "etcd.snapshot"
	timelineEntry = "control/timeline.db"
)

// kept is what a backup has of the data directory: the administrator's credentials, and control's own
// directory. It is last, as one that was restored is there with it.
var kept = []string{"admin.kubeconfig", "admin.token", "control"}

// madeAnew is what of control's directory need not be in a backup: control makes it of the rest, or
// sites and regionals tell it again.
func madeAnew(name string) bool {
	switch name {
	case "control/apiserver/etcd", "control/apiserver/lock", "control/desired", "control/clusters", "control/software-cache", timelineEntry:
		return true
	}
	// Audit logs go where logs go; they grow without end.
	return path.Dir(name) == "control/apiserver" && strings.HasPrefix(path.Base(name), "audit")
}

// serveBackups lets the operator have a backup of a running control.
func serveBackups(env *role.Env, c config.Config, server stored, told *timeline.Store) {
	var one sync.Mutex
	env.Ops.Mux().HandleFunc("GET "+config.BackupPath, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case c.InsecureLoopback:
			http.Error(w, "a backup holds the keys of the fleet, and with insecureLoopback anybody on this machine would get it: stop control and copy its directory", http.StatusForbidden)
			return
		case !one.TryLock():
			http.Error(w, "a backup is being made already; try again when it is done", http.StatusConflict)
			return
		}
		defer one.Unlock()
		s := backup.Source{
			Manifest: backup.Manifest{Muster: obs.Version, Created: time.Now().UTC().Truncate(time.Second), TrustDomain: c.TrustDomain, ExternalEtcd: !server.Embedded()},
			Dir:      c.DataDir, Trees: kept, Leave: madeAnew,
			Parts: []backup.Part{{Name: timelineEntry, Write: func(_ context.Context, w io.Writer) error { return told.Copy(w) }}},
		}
		if server.Embedded() {
			s.Parts = append(s.Parts, backup.Part{Name: objectsEntry, Write: server.Snapshot})
		}
		w.Header().Set("Content-Type", "application/gzip")
		if err := backup.Write(r.Context(), w, s); err != nil {
			env.Log.Error("a backup was not made", "err", err)
			panic(http.ErrAbortHandler) // so that nobody takes what came for all of it
		}
		env.Log.Info("a backup was made")
	})
}

// Backup writes a backup of the control that runs with a configuration.
func Backup(ctx context.Context, c config.Config, w io.Writer) error {
	known, err := c.OpenPeers(config.Operator)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ControlURL()+config.BackupPath, nil)
	if err != nil {
		return err
	}
	resp, err := known.Client().Do(req)
	if err != nil {
		return fmt.Errorf("control does not answer: %w; while it is stopped, copy %s as it is", err, Dir(c))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("control makes no backup: %s", strings.TrimSpace(string(b)))
	}
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("the backup is not complete: %w; control's log says why", err)
	}
	return nil
}

// Restore makes the data directory of a control that is not there out of a backup, and says of what.
func Restore(c config.Config, r io.Reader) (*backup.Manifest, error) {
	dir := Dir(c)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is there: stop control and move the directory away first", dir)
	}
	tmp := c.Path(".restore")
	if err := os.RemoveAll(tmp); err != nil { // of one that was interrupted
		return nil, err
	}
	defer os.RemoveAll(tmp)
	m, err := backup.Read(r, tmp)
	if err != nil {
		return nil, err
	}
	switch external := len(c.Control.Etcd.Endpoints) > 0; {
	case m.TrustDomain != c.TrustDomain:
		return nil, fmt.Errorf("trustDomain: the backup is of a fleet with %q, the configuration says %q: restore with the configuration of that fleet", m.TrustDomain, c.TrustDomain)
	case m.ExternalEtcd && !external:
		return nil, errors.New("control.etcd.endpoints: the backup is of a control with an external etcd: restore that by its own means, and name it")
	case !m.ExternalEtcd && external:
		return nil, errors.New("control.etcd.endpoints: the backup holds all objects, and the configuration names an external etcd: restore without it")
	}
	if !m.ExternalEtcd {
		if err := apiserver.Restore(filepath.Join(tmp, "control", "apiserver"), filepath.Join(tmp, objectsEntry)); err != nil {
			return nil, err
		}
	}
	for _, name := range kept {
		if err := (disk.OS{}).Rename(filepath.Join(tmp, name), c.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return m, disk.OS{}.SyncDir(c.DataDir)
}
