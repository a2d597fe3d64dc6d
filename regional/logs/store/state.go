package store

import (
	"errors"
	"fmt"
	"strings"
)

// Limits on the state that a Store keeps for its users.
const (
	MaxStateKey   = 512     // bytes
	MaxStateValue = 8 << 20 // bytes
)

var (
	// ErrNoState: there is nothing under the key.
	ErrNoState = errors.New("no such state")
	// ErrStateConflict: another has written, or deleted, the state since.
	ErrStateConflict = errors.New("the state was changed by another")
)

// CheckState refuses keys and values that a store does not take.
func CheckState(key string, value []byte) error {
	if key == "" || len(key) > MaxStateKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fmt.Errorf("state key %.80q: want 1 to %d printable ASCII characters", key, MaxStateKey)
	}
	if len(value) > MaxStateValue {
		return fmt.Errorf("state %s: %d bytes, the limit is %d", key, len(value), MaxStateValue)
	}
	return nil
}
