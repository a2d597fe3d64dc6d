package apiserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/util/keyutil"

	"muster.dev/muster/internal/atomicfile"
)

// adminUser is the name under which the administrator's token stands.
const adminUser = "muster:admin"

// ensureKey makes the key that signs tokens of service accounts, unless it is
// there.
func ensureKey(path string) error {
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(bytes.TrimSpace(b)) > 0: // an empty file was cut off as it was made
		if _, err := keyutil.ParsePrivateKeyPEM(b); err != nil {
			return fmt.Errorf("%s is damaged: restore it from a backup, or delete it: tokens of service accounts then have to be made anew (%w)", path, err)
		}
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// ensureTokens keeps a static token for the administrator and for each user, so
// that kubeconfigs stay good over restarts. It returns them by name. A user who is
// no longer named loses the token; lines that make no sense are made anew.
func ensureTokens(path string, users map[string][]string) (map[string]string, error) {
	known := map[string]string{}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ",", 4); len(f) == 4 && isToken(f[0]) {
			known[f[1]] = f[0]
		}
	}
	tokens := map[string]string{}
	var out strings.Builder
	add := func(name string, groups ...string) {
		token, ok := known[name]
		if !ok {
			b := make([]byte, 32)
			_, _ = rand.Read(b)
			token = base64.RawURLEncoding.EncodeToString(b)
		}
		tokens[name] = token
		fmt.Fprintf(&out, "%s,%s,%s,%q\n", token, name, name, strings.Join(groups, ","))
	}
	add(adminUser, "system:masters")
	for _, name := range slices.Sorted(maps.Keys(users)) {
		add(name, users[name]...)
	}
	return tokens, atomicfile.Write(path, []byte(out.String()), 0o600)
}

// isToken tells a token from the rest of a line that was cut.
func isToken(s string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	return err == nil && len(raw) >= 32
}
