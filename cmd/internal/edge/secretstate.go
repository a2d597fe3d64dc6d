package edge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/control/agent/factoryreset"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
)

// saveEvery is how often the agent's files are looked at for what the Secret lacks.
const saveEvery = 10 * time.Second

// secretState keeps a site's key and certificate in a Secret, so that the pod comes back
// as the same site on any node, with no disk that moves along. The files in dir stay what
// the agent reads; the Secret is made by the manifest, because a right to create Secrets
// can't be kept to one name. A factory reset that has begun is in it too, until the Secret
// has the site's next key: another pod goes on with it.
type secretState struct {
	secrets corev1client.SecretInterface
	name    string // NAMESPACE/NAME
	dir     string
	// resetDir is where a factory reset is remembered.
	resetDir string
	log      *slog.Logger
	mu       sync.Mutex // one save at a time
	saved    [sha256.Size]byte
}

// kept are the files by their names in the Secret, in the order in which they are brought
// back: those of the identity last, as they decide whether that is to be done.
func (s *secretState) kept() []keptFile {
	var out []keptFile
	for _, name := range factoryreset.Files() {
		out = append(out, keptFile{name, filepath.Join(s.resetDir, name)})
	}
	names := agent.IdentityFiles()
	slices.Reverse(names) // the key last of all
	for _, name := range names {
		out = append(out, keptFile{name, filepath.Join(s.dir, name)})
	}
	return out
}

type keptFile struct{ name, path string }

func (s *secretState) secret() string { return filepath.Base(s.name) }

// restore writes what the Secret holds into dir. If both hold a key, the Secret's counts:
// dir may be what another pod left behind.
func (s *secretState) restore(ctx context.Context) error {
	got, err := s.secrets.Get(ctx, s.secret(), metav1.GetOptions{})
	if err != nil {
		if _, lerr := os.Stat(filepath.Join(s.dir, agent.KeyFile)); lerr == nil && !apierrors.IsNotFound(err) {
			s.log.Warn("the Secret with the site's identity can't be read; going on with what is on the disk", "secret", s.name, "err", err)
			return nil
		}
		return s.explain(err)
	}
	if len(got.Data[agent.KeyFile]) == 0 {
		return nil // the first start, or one before this Secret was there
	}
	for _, dir := range []string{s.dir, s.resetDir} {
		if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
			return fmt.Errorf("bring back the site's identity: %w", err)
		}
	}
	old, err := os.ReadFile(filepath.Join(s.dir, agent.KeyFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bring back the site's identity: %w", err)
	}
	if bytes.Equal(old, got.Data[agent.KeyFile]) {
		return nil // this pod restarted; its certificate is as new as the Secret's, or newer
	}
	for _, f := range s.kept() {
		if b := got.Data[f.name]; len(b) > 0 {
			err = atomicfile.Write(f.path, b, 0o600)
		} else if err = os.Remove(f.path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("bring back the site's identity: %w", err)
		}
	}
	s.log.Info("the site's identity is back from its Secret", "secret", s.name)
	return nil
}

// save writes to the Secret what changed in dir.
func (s *secretState) save(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := map[string][]byte{}
	sum := sha256.New()
	for _, f := range s.kept() {
		b, err := os.ReadFile(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keep the site's identity: %w", err)
		}
		data[f.name] = b
		fmt.Fprintf(sum, "%s %d\n", f.name, len(b))
		sum.Write(b)
	}
	now := [sha256.Size]byte(sum.Sum(nil))
	if now == s.saved || len(data) == 0 {
		return nil
	}
	got, err := s.secrets.Get(ctx, s.secret(), metav1.GetOptions{})
	if err != nil {
		return s.explain(err)
	}
	key, next := got.Data[agent.KeyFile], got.Data[factoryreset.NextKeyFile]
	if len(key) > 0 && !bytes.Equal(key, data[agent.KeyFile]) && !bytes.Equal(next, data[agent.KeyFile]) {
		return fmt.Errorf("the Secret %s holds the key of another site, or of another pod; delete what is in it to let this one in", s.name)
	}
	got.Data = data
	if _, err := s.secrets.Update(ctx, got, metav1.UpdateOptions{FieldManager: "muster-edge"}); err != nil {
		return s.explain(err)
	}
	s.saved = now
	return nil
}

// explain says what to do about an error of the API server.
func (s *secretState) explain(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the Secret %s for the site's identity is not there; apply the manifest again: %w", s.name, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the service account may not get and update the Secret %s, in which the site's identity is kept; apply the manifest again: %w", s.name, err)
	}
	return fmt.Errorf("the Secret %s with the site's identity: %w", s.name, err)
}

// run saves each renewed certificate. One that was not saved costs nothing but a new
// enrolment: the key is what makes the site.
func (s *secretState) run(ctx context.Context) error {
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(saveEvery):
		}
		cctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := s.save(cctx)
		cancel()
		switch {
		case err == nil:
			failed = ""
		case err.Error() != failed && ctx.Err() == nil:
			failed = err.Error()
			s.log.Warn("can't keep the site's identity; trying again", "err", err)
		}
	}
}
