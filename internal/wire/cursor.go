package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
)

// maxCursor is the longest cursor that is looked at, in bytes.
const maxCursor = 1024

// EncodeCursor is where a page of a list ended, for a client that hands it back unread to
// get the next one. It must marshal to JSON; it carries no rights and is no secret.
func EncodeCursor(position any) string {
	b, err := json.Marshal(position)
	if err != nil {
		panic(err) // positions are strings and finite numbers
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeCursor fills the position that EncodeCursor was given. What a client made up may
// still be of the right form: the caller checks the values.
func DecodeCursor(cursor string, position any) error {
	if len(cursor) > maxCursor {
		return errors.New("too long for a cursor")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(position); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than a cursor")
	}
	return nil
}
