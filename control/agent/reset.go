package agent

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/wire"
)

// nothing is the desired state of a site that shall hold nothing.
func nothing() *wire.DesiredState { return &wire.DesiredState{Revision: wire.RevisionOf(nil)} }

// Clear takes away, from now on, all that control wanted, and takes nothing more from it. It is
// for a site that resets itself, and lasts as long as the process.
func (a *Agent) Clear() {
	a.desired.mu.Lock()
	a.desired.clear = true
	a.desired.mu.Unlock()
	a.desired.want(nothing())
}

// Empty tells that the site holds nothing any more, as far as appliers that are done at once
// go. Appliers of sets say for themselves when they are done.
func (a *Agent) Empty() bool {
	a.desired.mu.Lock()
	defer a.desired.mu.Unlock()
	return a.desired.clear && len(a.desired.held.Items) == 0 && a.desired.applied == a.desired.held.Revision && a.desired.applied == nothing().Revision
}

// Key signs with the machine's key; hash names it.
func (a *Agent) Key() (key crypto.Signer, hash string, err error) {
	hash, err = identity.KeyHash(a.key.Public())
	return a.key, hash, err
}

// Trusted are the CAs that the site trusts; nil before it is enrolled.
func (a *Agent) Trusted() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pool
}

// NewKey makes a key as the file of one holds it, and its hash.
func NewKey() (keyPEM []byte, hash string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	hash, err = identity.KeyHash(key.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), hash, err
}

// ParseKey reads what NewKey made.
func ParseKey(keyPEM []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("it holds no key")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := k.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T can't sign", k)
	}
	return signer, nil
}

// Rekey gives the machine whose state is in dir another key, with which it registers under
// the name at the next start; how it reaches the fleet stays. It may be called again after a
// power cut, with the same key.
func Rekey(fsys disk.FS, dir string, keyPEM []byte, site string) error {
	j, err := Joined(dir)
	if err != nil {
		return fmt.Errorf("exchange the site's key: %w", err)
	}
	if err := atomicfile.WriteTo(fsys, filepath.Join(dir, keyFile), keyPEM, 0o600); err != nil {
		return fmt.Errorf("exchange the site's key: %w", err)
	}
	for _, name := range []string{certFile, desiredFile, desiredFile + journal.Suffix} {
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("exchange the site's key: %w", err)
		}
	}
	j.Site = site
	b, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("exchange the site's key: %w", err)
	}
	return atomicfile.WriteTo(fsys, filepath.Join(dir, joinFile), b, 0o600)
}

// HasKey tells whether the machine whose state is in dir has that key.
func HasKey(dir string, keyPEM []byte) bool {
	b, err := os.ReadFile(filepath.Join(dir, keyFile))
	return err == nil && string(b) == string(keyPEM)
}

// BlobDir is where the state directory keeps what control wanted.
func BlobDir(dir string) string { return filepath.Join(dir, blobDir) }
