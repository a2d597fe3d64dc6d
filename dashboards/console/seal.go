package console

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"muster.dev/muster/internal/disk"
)

const (
	sessionKeyBytes = 32
	sessionKeyFile  = "session.keys"
	maxSessionKeys  = 16
	sealedVersion   = 2
)

var (
	errNotOurs     = errors.New("not sealed by this console")
	errExpired     = errors.New("the session has expired")
	errCookieSpace = errors.New("too long for cookies")
)

// purpose binds a sealed value to its use: one kind is never taken for another.
type purpose string

const (
	forSession purpose = "muster_session/2"
	forLogin   purpose = "muster_login/2"
)

// sealer makes and opens cookie values: base64url(version ‖ nonce ‖ AES-256-GCM), of
// JSON, deflated. The first key seals; all open.
type sealer struct {
	aeads atomic.Pointer[[]cipher.AEAD]
}

func newSealer(keys [][]byte) (*sealer, error) {
	s := &sealer{}
	return s, s.setKeys(keys)
}

func (s *sealer) setKeys(keys [][]byte) error {
	if len(keys) == 0 {
		return errors.New("there is no key")
	}
	aeads := make([]cipher.AEAD, len(keys))
	for i, key := range keys {
		if len(key) != sessionKeyBytes {
			return fmt.Errorf("key %d: want %d bytes, have %d", i+1, sessionKeyBytes, len(key))
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return err
		}
		if aeads[i], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return err
		}
	}
	s.aeads.Store(&aeads)
	return nil
}

// seal makes v secret and unforgeable.
func (s *sealer) seal(p purpose, v any) (string, error) {
	var buf bytes.Buffer
	zw, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		return "", err
	}
	if err := errors.Join(json.NewEncoder(zw).Encode(v), zw.Close()); err != nil {
		return "", err
	}
	aead := (*s.aeads.Load())[0]
	return base64.RawURLEncoding.EncodeToString(aead.Seal([]byte{sealedVersion}, nil, buf.Bytes(), []byte(p))), nil
}

// open returns errNotOurs for garbage, forgeries, and what another key or purpose sealed.
func (s *sealer) open(p purpose, value string, out any) error {
	if len(value) > maxSealed {
		return errNotOurs
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(raw) < 1 || raw[0] != sealedVersion {
		return errNotOurs
	}
	for _, aead := range *s.aeads.Load() {
		packed, err := aead.Open(nil, nil, raw[1:], []byte(p))
		if err != nil {
			continue
		}
		// It is our own writing from here on, and short as we wrote it.
		b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 4*maxSealed))
		if err != nil || json.Unmarshal(b, out) != nil {
			return errNotOurs
		}
		return nil
	}
	return errNotOurs
}

// sessionKeys is the file that the keys are in.
type sessionKeys struct {
	path string
	have []byte
}

// openSessionKeys reads the keys of a file that the operator made, or of one in dir,
// which is made on first use.
func openSessionKeys(file, dir string) (*sessionKeys, [][]byte, error) {
	k := &sessionKeys{path: file}
	if file == "" {
		if dir == "" {
			return nil, nil, errors.New("neither SessionKeyFile nor Dir is set")
		}
		k.path = filepath.Join(dir, sessionKeyFile)
		if err := makeSessionKeys(k.path); err != nil {
			return nil, nil, err
		}
	}
	keys, err := k.read()
	return k, keys, err
}

// read returns the keys, nil when they are those that were read before.
func (k *sessionKeys) read() ([][]byte, error) {
	info, err := os.Stat(k.path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s is open to others (mode %04o): who reads it can forge sessions; chmod 600 it", k.path, info.Mode().Perm())
	}
	b, err := os.ReadFile(k.path)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(b, k.have) {
		return nil, nil
	}
	keys, err := parseSessionKeys(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}
	k.have = b
	return keys, nil
}

func parseSessionKeys(b []byte) ([][]byte, error) {
	var keys [][]byte
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != sessionKeyBytes {
			return nil, fmt.Errorf("line %d: want %d random bytes in base64, as `openssl rand -base64 %d` prints", n, sessionKeyBytes, sessionKeyBytes)
		}
		if keys = append(keys, key); len(keys) > maxSessionKeys {
			return nil, fmt.Errorf("line %d: want at most %d keys; drop the oldest", n, maxSessionKeys)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("holds no key; put one in with `openssl rand -base64 %d`", sessionKeyBytes)
	}
	return keys, nil
}

// makeSessionKeys makes the file if it doesn't exist. Processes that start at the same
// moment end up with the same key.
func makeSessionKeys(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	if err := disk.MkdirAll(disk.OS{}, dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, sessionKeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	fresh := make([]byte, sessionKeyBytes)
	rand.Read(fresh) // never fails
	_, err = tmp.WriteString(base64.StdEncoding.EncodeToString(fresh) + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	// A link fails where another process was first; then its key counts.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return disk.OS{}.SyncDir(dir)
}

const keysEvery = 10 * time.Second
