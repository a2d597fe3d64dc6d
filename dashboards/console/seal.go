package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	sessionKeyBytes = 32
	sessionKeyFile  = "session.key"
	sealedVersion   = 1
	// maxCookieValue leaves room for the name and the attributes in the 4,096 bytes
	// that browsers keep for a cookie.
	maxCookieValue = 3900
)

// sealedSession is what the cookie holds, encrypted and authenticated. There is no
// list of sessions: any replica with the key can open it, and the token inside is
// reviewed again with each request.
type sealedSession struct {
	Token   string `json:"t"`
	Expires int64  `json:"e"` // Unix seconds
}

var (
	errNotOurs     = errors.New("not a session of this console")
	errExpired     = errors.New("the session has expired")
	errCookieSpace = errors.New("the token is too long for a cookie")
)

// sealer makes and opens cookie values: base64url(version ‖ nonce ‖ AES-256-GCM).
type sealer struct {
	aead cipher.AEAD
	now  func() time.Time
}

func newSealer(key []byte, now func() time.Time) (*sealer, error) {
	if len(key) != sessionKeyBytes {
		return nil, fmt.Errorf("want %d bytes, have %d", sessionKeyBytes, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead: aead, now: now}, nil
}

// additional binds a sealed value to its use and version.
var additional = []byte("muster_session/1")

func (s *sealer) seal(v sealedSession) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	out := base64.RawURLEncoding.EncodeToString(s.aead.Seal([]byte{sealedVersion}, nil, plain, additional))
	if len(out) > maxCookieValue {
		return "", errCookieSpace
	}
	return out, nil
}

// open returns errNotOurs for garbage and forgeries, errExpired for old sessions.
func (s *sealer) open(value string) (sealedSession, error) {
	var v sealedSession
	if len(value) > maxCookieValue {
		return v, errNotOurs
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(raw) < 1+s.aead.Overhead() || raw[0] != sealedVersion {
		return v, errNotOurs
	}
	plain, err := s.aead.Open(nil, nil, raw[1:], additional)
	if err != nil || json.Unmarshal(plain, &v) != nil || v.Token == "" {
		return sealedSession{}, errNotOurs
	}
	if s.now().Unix() >= v.Expires {
		return sealedSession{}, errExpired
	}
	return v, nil
}

// loadSessionKey reads the key in dir, or makes one. Processes that start at the
// same moment end up with the same key.
func loadSessionKey(dir string) ([]byte, error) {
	if dir == "" {
		return nil, errors.New("neither SessionKey nor Dir is set")
	}
	path := filepath.Join(dir, sessionKeyFile)
	key, err := readSessionKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(dir, sessionKeyFile+".*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	fresh := make([]byte, sessionKeyBytes)
	rand.Read(fresh) // never fails
	_, err = tmp.Write(fresh)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	// A link fails where another process was first; then its key counts.
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return readSessionKey(path)
}

func readSessionKey(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s is open to others (mode %04o): who reads it can forge sessions; chmod 600 it, or delete it to have a new one made", path, info.Mode().Perm())
	}
	key, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(key) != sessionKeyBytes {
		return nil, fmt.Errorf("%s holds %d bytes instead of %d; delete it to have a new one made (everybody then logs in again)", path, len(key), sessionKeyBytes)
	}
	return key, nil
}
