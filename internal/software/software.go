// Package software is what a site is told of the software that it shall run, and how it
// says how far it is. It holds the shapes and their coding, and does no I/O:
// control/desired encodes, control/agent decodes. The edge binary links it.
//
// Which files may be trusted is not said here: package bundle decides that by signatures,
// and what stands here can only narrow it.
package software

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"muster.dev/muster/internal/fleet"
)

// Kind is the wire.Item kind of a Wanted; the item's name is its component.
const Kind = "Software"

// Components are the parts of a site that are replaced as a whole.
var Components = []string{"os", "agent", "platform"}

// Kubernetes is the architecture of a version's file for sites that run it as pods: the
// reference of an image. Files for any architecture are none.
const Kubernetes = "kubernetes"

// MaxBytes of one encoded Wanted; its root metadata is most of it.
const MaxBytes = 1 << 20

// Wanted is the version of one component that a site shall run.
type Wanted struct {
	Component string `json:"component"`
	// Version that shall run. Empty: what ran before control asked for another one, if that
	// is still in the other slot; a site that was never asked stays as it is.
	Version string `json:"version,omitempty"`
	// Files of the version, one an architecture or one for any. None: the version has not
	// been released, or not any more, and the site says so.
	Files []File `json:"files,omitempty"`
	// Requires is the oldest version by component that has to run before.
	Requires map[string]string `json:"requires,omitempty"`
	// Withdrawn says why nobody may begin to install it any more.
	Withdrawn string `json:"withdrawn,omitempty"`
	// WithdrawnOf says it, without a Version, of those that may have run before.
	WithdrawnOf map[string]string `json:"withdrawnOf,omitempty"`
	// NotBefore is when the site may begin, the download as well; zero: at once.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Windows in which the site may begin, and restart, in TimeZone; none: at any time.
	Windows  []fleet.Window `json:"windows,omitempty"`
	TimeZone string         `json:"timeZone,omitempty"` // of the IANA database; empty: UTC
	// DeferBy is how long after the site heard of the version its own operator may put it
	// off; 0: not at all.
	DeferBy time.Duration `json:"deferBy,omitempty"`
	// BytesPerSecond of the download; 0: no limit.
	BytesPerSecond int `json:"bytesPerSecond,omitempty"`
	// Retry counts how often somebody asked to try again what had failed.
	Retry int `json:"retry,omitempty"`
	// Root is the repository's root metadata (TUF) as of now. A site keeps the first one
	// that it ever got; newer ones count only if those before have signed them.
	Root json.RawMessage `json:"root,omitempty"`
}

// File is what a version is made of for an architecture.
type File struct {
	Architecture string `json:"architecture"` // as in runtime.GOARCH; any: of all machines; or Kubernetes
	Target       string `json:"target"`       // its name in the signed repository
	Digest       string `json:"digest"`       // SHA-256 in hex
	Size         int64  `json:"size"`         // bytes
}

// For returns the file for an architecture.
func (w *Wanted) For(architecture string) (File, bool) {
	i := slices.IndexFunc(w.Files, func(f File) bool {
		return f.Architecture == architecture || f.Architecture == "any" && architecture != Kubernetes
	})
	if i < 0 {
		return File{}, false
	}
	return w.Files[i], true
}

// Encode returns the blob; equal values give equal bytes.
func (w *Wanted) Encode() []byte {
	b, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("software: encode: %v", err)) // plain data: can't fail
	}
	return b
}

// Decode parses and checks a blob. Fields that a newer control has added are ignored.
func Decode(b []byte) (*Wanted, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("software: %d bytes, the limit is %d", len(b), MaxBytes)
	}
	w := &Wanted{}
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("software: %w", err)
	}
	return w, w.validate()
}

var (
	digest = regexp.MustCompile(`^[0-9a-f]{64}$`)
	target = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$`)
	semver = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9]+([-.][a-z0-9]+)*)?$`)
)

func (w *Wanted) validate() error {
	if !slices.Contains(Components, w.Component) {
		return fmt.Errorf("software: component: %q: want one of %v", w.Component, Components)
	}
	if w.Version != "" && (len(w.Version) > 50 || !semver.MatchString(w.Version)) {
		return fmt.Errorf("software: version: %.60q: want Semantic Versioning's form, such as 1.4.2", w.Version)
	}
	for c, v := range w.Requires {
		if !slices.Contains(Components, c) || !semver.MatchString(v) {
			return fmt.Errorf("software: requires: %.20q: %.60q: want versions by component", c, v)
		}
	}
	for v := range w.WithdrawnOf {
		if !semver.MatchString(v) {
			return fmt.Errorf("software: withdrawnOf: %.60q: want versions", v)
		}
	}
	for i, f := range w.Files {
		switch {
		case f.Architecture == "":
			return fmt.Errorf("software: files[%d].architecture: want one, or any", i)
		case len(f.Target) > 200 || !target.MatchString(f.Target):
			return fmt.Errorf("software: files[%d].target: %.60q: want a name such as os/1.4.2/amd64.img", i, f.Target)
		case !digest.MatchString(f.Digest):
			return fmt.Errorf("software: files[%d].digest: want a SHA-256 in hex", i)
		case f.Size < 1:
			return fmt.Errorf("software: files[%d].size: %d bytes: want more than none", i, f.Size)
		}
	}
	if err := (&fleet.Calendar{Windows: w.Windows}).Check(); err != nil {
		return fmt.Errorf("software: %w", err)
	}
	if _, err := time.LoadLocation(w.TimeZone); err != nil {
		return fmt.Errorf("software: timeZone: %w", err)
	}
	if w.DeferBy < 0 || w.BytesPerSecond < 0 || w.Retry < 0 {
		return errors.New("software: deferBy, bytesPerSecond and retry: want 0 or more")
	}
	return nil
}
