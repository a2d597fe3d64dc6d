// Package conf loads YAML strictly: an unknown or repeated field is an error
// that names the file, the line and the field. It knows no schema; each program
// hands in its own struct, already filled with defaults.
package conf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Validator is implemented by config structs that check more than the types.
type Validator interface{ Validate() error }

// Load reads the YAML file into out, over the defaults that out already holds.
func Load(path string, out any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return Parse(path, data, out)
}

// Parse is Load for bytes; name is what errors call the source.
func Parse(name string, data []byte, out any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(out); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("config %s: %s", name, oneLine(err))
	}
	var rest yaml.Node
	if err := dec.Decode(&rest); !errors.Is(err, io.EOF) {
		return fmt.Errorf("config %s: more than one YAML document; keep one", name)
	}
	if v, ok := out.(Validator); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("config %s: %w", name, err)
		}
	}
	return nil
}

func oneLine(err error) string {
	s := strings.TrimPrefix(err.Error(), "yaml: ")
	s = strings.TrimPrefix(s, "unmarshal errors:\n  ")
	return strings.ReplaceAll(s, "\n  ", "; ")
}

// Duration is a time.Duration written as in Go ("15s", "1h30m").
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 15s or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// D returns the value as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }
