package routes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// External gives the merged routes to Alertmanagers that run elsewhere: as a file,
// which they read as their --config.file, and a request to read it again when it has
// changed. A reload starts all groups anew, so none is asked twice for the same.
type External struct {
	file   string
	urls   []string
	client *http.Client
	log    *slog.Logger
	taken  map[string]string // by URL, the configuration that it said yes to
}

// NewExternal makes one of the file and the base URLs of the Alertmanagers.
func NewExternal(file string, urls []string, client *http.Client, log *slog.Logger) *External {
	return &External{file: file, urls: urls, client: client, log: log, taken: map[string]string{}}
}

// Apply is called by one goroutine. One that is away reads the file when it starts, and
// is asked again at the next call; while another one has the configuration, that is
// no error.
func (e *External) Apply(config []byte) error {
	if err := disk.MkdirAll(disk.OS{}, filepath.Dir(e.file), 0o700); err != nil {
		return err
	}
	if b, err := os.ReadFile(e.file); err != nil || !bytes.Equal(b, config) {
		if err := atomicfile.Write(e.file, config, 0o600); err != nil {
			return fmt.Errorf("write the merged routes: %w", err)
		}
	}
	var refused, away []error
	for _, u := range e.urls {
		if e.taken[u] == string(config) {
			continue
		}
		resp, err := e.client.Post(strings.TrimSuffix(u, "/")+"/-/reload", "", nil)
		if err != nil {
			away = append(away, fmt.Errorf("ask the Alertmanager to reload: %w", err))
			continue
		}
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			refused = append(refused, fmt.Errorf("reload of %s: %s: %s", u, resp.Status, strings.TrimSpace(string(b))))
			continue
		}
		e.taken[u] = string(config)
	}
	switch {
	case len(refused) > 0:
		return errors.Join(append(refused, away...)...)
	case len(away) == len(e.urls):
		return &TryLater{Err: errors.Join(away...)}
	case len(away) > 0:
		e.log.Warn("an Alertmanager does not have the alert routes yet", "err", errors.Join(away...))
	}
	return nil
}
