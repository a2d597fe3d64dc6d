package embedded

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/bbolt"

	"muster.dev/muster/internal/disk"
	"muster.dev/muster/regional/logs/store"
)

// The state is a bbolt file beside the shards: one bucket, and in it the version (8
// bytes) before each value.
var stateBucket = []byte("state")

func openState(dir string) (*bbolt.DB, error) {
	// The directory's lock keeps other processes out already.
	db, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, fmt.Errorf("state of the log store: %w", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(stateBucket)
		return err
	})
	if err == nil {
		err = disk.OS{}.SyncDir(dir) // where its name may be new
	}
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("state of the log store: %w", err)
	}
	return db, nil
}

// Now is just below the earliest write that is going on; see store.Store.
func (s *Store) Now(context.Context) (time.Time, error) {
	if err := s.enter(); err != nil {
		return time.Time{}, err
	}
	defer s.inflight.Done()
	return time.Unix(0, s.clock.Horizon()-1).UTC(), nil
}

// GetState returns a value and its version; see store.Store.
func (s *Store) GetState(_ context.Context, key string) (value []byte, version string, err error) {
	if err := store.CheckState(key, nil); err != nil {
		return nil, "", err
	}
	if err := s.enter(); err != nil {
		return nil, "", err
	}
	defer s.inflight.Done()
	err = s.state.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(stateBucket).Get([]byte(key))
		if len(v) < 8 {
			return store.ErrNoState
		}
		value, version = append([]byte{}, v[8:]...), versionOf(v)
		return nil
	})
	return value, version, err
}

func versionOf(v []byte) string { return strconv.FormatUint(binary.BigEndian.Uint64(v), 10) }

// PutState writes a value if the version is the one that is there; see store.Store.
func (s *Store) PutState(_ context.Context, key string, value []byte, version string) (next string, err error) {
	if err := store.CheckState(key, value); err != nil {
		return "", err
	}
	if err := s.enter(); err != nil {
		return "", err
	}
	defer s.inflight.Done()
	err = s.state.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(stateBucket)
		if err := same(b, key, version); err != nil {
			return err
		}
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		v := append(binary.BigEndian.AppendUint64(nil, n), value...)
		next = versionOf(v)
		return b.Put([]byte(key), v)
	})
	if err != nil {
		return "", fmt.Errorf("write the state %s: %w", key, err)
	}
	return next, nil
}

// DeleteState deletes a version; see store.Store.
func (s *Store) DeleteState(_ context.Context, key, version string) error {
	if err := store.CheckState(key, nil); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.inflight.Done()
	err := s.state.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(stateBucket)
		if version == "" {
			return store.ErrStateConflict
		}
		if err := same(b, key, version); err != nil {
			return err
		}
		return b.Delete([]byte(key))
	})
	if err != nil {
		return fmt.Errorf("delete the state %s: %w", key, err)
	}
	return nil
}

func same(b *bbolt.Bucket, key, version string) error {
	have := ""
	if v := b.Get([]byte(key)); len(v) >= 8 {
		have = versionOf(v)
	}
	if have != version {
		return store.ErrStateConflict
	}
	return nil
}
