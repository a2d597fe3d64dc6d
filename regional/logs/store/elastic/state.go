package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"muster.dev/muster/regional/logs/store"
)

// The state is one index, PREFIX-state: a document a key, read and written by
// Elasticsearch's own compare-and-swap on sequence numbers. Reads by ID see the last
// write at once, without a refresh. Its name has no day, so neither searches nor the
// retention find it.
func (s *Store) stateIndex() string { return s.opts.Prefix + "-state" }

type stateDocument struct {
	Key   string `json:"key"`
	Value string `json:"value"` // base64
}

type stateAnswer struct {
	ID      string        `json:"_id"`
	Found   bool          `json:"found"`
	SeqNo   int64         `json:"_seq_no"`
	Primary int64         `json:"_primary_term"`
	Source  stateDocument `json:"_source"`
}

func (a stateAnswer) version() string {
	return strconv.FormatInt(a.SeqNo, 10) + "." + strconv.FormatInt(a.Primary, 10)
}

// stateID is a key as the ID of a document, which may have 512 bytes: the client
// writes IDs into paths as they are.
func stateID(key string) string {
	if id := base64.RawURLEncoding.EncodeToString([]byte(key)); len(id) <= 512 {
		return id
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// GetState returns a value and its version; see store.Store.
func (s *Store) GetState(ctx context.Context, key string) (value []byte, version string, err error) {
	if err := store.CheckState(key, nil); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	var a stateAnswer
	err = s.do(ctx, esapi.GetRequest{Index: s.stateIndex(), DocumentID: stateID(key)}, &a)
	var e *Error
	switch {
	case errors.As(err, &e) && e.Status == http.StatusNotFound, err == nil && !a.Found:
		return nil, "", store.ErrNoState
	case err != nil:
		return nil, "", fmt.Errorf("read the state %s: %w", key, err)
	}
	if value, err = base64.StdEncoding.DecodeString(a.Source.Value); err != nil {
		return nil, "", fmt.Errorf("read the state %s: %w", key, err)
	}
	return value, a.version(), nil
}

// PutState writes a value if the version is the one that is there; see store.Store.
func (s *Store) PutState(ctx context.Context, key string, value []byte, version string) (string, error) {
	if err := store.CheckState(key, value); err != nil {
		return "", err
	}
	// Without the template Elasticsearch would index the value.
	if err := s.ensureTemplate(ctx); err != nil {
		return "", err
	}
	body, err := json.Marshal(stateDocument{key, base64.StdEncoding.EncodeToString(value)})
	if err != nil {
		return "", err
	}
	req := esapi.IndexRequest{Index: s.stateIndex(), DocumentID: stateID(key), Body: bytes.NewReader(body), OpType: "create"}
	if version != "" {
		seq, primary, err := parseVersion(version)
		if err != nil {
			return "", fmt.Errorf("write the state %s: %w", key, err)
		}
		req.OpType, req.IfSeqNo, req.IfPrimaryTerm = "index", &seq, &primary
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	var a stateAnswer
	if err := conflict(s.do(ctx, req, &a)); err != nil {
		return "", fmt.Errorf("write the state %s: %w", key, err)
	}
	return a.version(), nil
}

// DeleteState deletes a version; see store.Store.
func (s *Store) DeleteState(ctx context.Context, key, version string) error {
	if err := store.CheckState(key, nil); err != nil {
		return err
	}
	seq, primary, err := parseVersion(version)
	if err != nil {
		return fmt.Errorf("delete the state %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.MaxQueryTime)
	defer cancel()
	if err := conflict(s.do(ctx, esapi.DeleteRequest{Index: s.stateIndex(), DocumentID: stateID(key), IfSeqNo: &seq, IfPrimaryTerm: &primary}, nil)); err != nil {
		return fmt.Errorf("delete the state %s: %w", key, err)
	}
	return nil
}

func parseVersion(version string) (seq, primary int, err error) {
	a, b, ok := strings.Cut(version, ".")
	if ok {
		if seq, err = strconv.Atoi(a); err == nil {
			primary, err = strconv.Atoi(b)
		}
	}
	if !ok || err != nil || seq < 0 || primary < 1 {
		return 0, 0, store.ErrStateConflict
	}
	return seq, primary, nil
}

// conflict tells what Elasticsearch says of a version that is not there any more.
func conflict(err error) error {
	var e *Error
	if errors.As(err, &e) && (e.Status == http.StatusConflict || e.Status == http.StatusNotFound) {
		return store.ErrStateConflict
	}
	return err
}
