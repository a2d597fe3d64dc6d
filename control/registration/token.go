package registration

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"muster.dev/muster/internal/fleet"
)

// A token is printed once, as "muster1.<tenant>.<name>.<secret>"; the secret is 32
// random bytes, base64url without padding. The API server holds its hash alone.
const (
	tokenVersion = "muster1"
	secretBytes  = 32
	maxToken     = 200 // bytes
)

// Token is a token as its holder has it.
type Token struct {
	Tenant string
	Name   string // of the RegistrationToken in <tenant>-system
	Secret string
}

// NewToken makes a token with a fresh secret.
func NewToken(tenant, name string) (Token, error) {
	b := make([]byte, secretBytes)
	if _, err := rand.Read(b); err != nil {
		return Token{}, fmt.Errorf("make a token: %w", err)
	}
	t := Token{Tenant: tenant, Name: name, Secret: base64.RawURLEncoding.EncodeToString(b)}
	return t, t.validate()
}

// String is the whole token: a secret. Never log it.
func (t Token) String() string {
	return strings.Join([]string{tokenVersion, t.Tenant, t.Name, t.Secret}, ".")
}

// SecretHash is RegistrationToken.spec.secretHash: the SHA-256, in hex, of the
// secret part as it is written in the token.
func (t Token) SecretHash() string {
	sum := sha256.Sum256([]byte(t.Secret))
	return hex.EncodeToString(sum[:])
}

func (t Token) validate() error {
	if err := fleet.ValidateTenant(t.Tenant); err != nil {
		return err
	}
	if err := (fleet.SiteID{Tenant: t.Tenant, Name: t.Name}).Validate(); err != nil {
		return fmt.Errorf("token name %q: want 1 to 63 lower-case letters, digits or '-'", t.Name)
	}
	// Strict: bits that base64 would ignore must be zero, so that a token has one spelling.
	if b, err := base64.RawURLEncoding.Strict().DecodeString(t.Secret); err != nil || len(b) != secretBytes {
		return errors.New("the secret part is damaged")
	}
	return nil
}

// ParseToken reads what a holder sent. The error never repeats the input.
func ParseToken(s string) (Token, error) {
	if len(s) > maxToken {
		return Token{}, errors.New("token: too long")
	}
	parts := strings.Split(s, ".")
	if len(parts) != 4 || parts[0] != tokenVersion {
		return Token{}, fmt.Errorf("token: want %s.TENANT.NAME.SECRET, as printed by `muster token create`", tokenVersion)
	}
	t := Token{Tenant: parts[1], Name: parts[2], Secret: parts[3]}
	if err := t.validate(); err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	return t, nil
}
