// Package software replaces what a site runs (its operating system, the agent itself)
// the way a phone does: the new version goes into the slot that is not in use, is tried
// with one boot, and stays only if it is well; else, or if the power fails on the way, the
// old one comes up again by itself.
//
// Machine is the walk, step by step, on disk before each step is taken; a Driver knows one
// way of having two slots: packages grub and self. What every driver has to pass is
// internal/testkit/softwaredriver. The agent drives one Machine a component. It decides
// nothing about which version a site gets and trusts nobody's word on what is in a file:
// Options.Fetch gives files that were verified (internal/software/bundle, delivery).
package software

import (
	"context"
	"io"
	"time"
)

// Driver has two slots, one of which runs. All of its methods may be called again after
// they were broken off anywhere, also by a power cut; none but Boot, and none of them
// half done, changes what runs or leaves a slot as the next to boot that is not whole.
// Not safe for concurrent use.
type Driver interface {
	// State is what runs now and what will.
	State(ctx context.Context) (State, error)
	// Write puts an image, of size bytes, into the slot that does not run. From its begin
	// until Verify that slot is never booted.
	Write(ctx context.Context, version string, image io.Reader, size int64) error
	// Verify reads what is in that slot and compares its SHA-256, in hex. If it is the same
	// the slot holds that version from then on, and may be switched to.
	Verify(ctx context.Context, version, digest string, size int64) error
	// Switch makes the next boot, and only that one, try the slot with the version, which
	// was verified.
	Switch(ctx context.Context, version string) error
	// Boot restarts into what is next. It may return before that happens, or never.
	Boot(ctx context.Context) error
	// MarkGood makes what runs what boots from now on.
	MarkGood(ctx context.Context) error
	// FallBack undoes Switch, and makes the slot that does not run what boots next if the
	// one that runs was never marked good.
	FallBack(ctx context.Context) error
}

// State of a Driver.
type State struct {
	// Running is the version that runs.
	Running string
	// Boot tells this boot from all others.
	Boot string
	// Good: what runs was marked good, or was there first.
	Good bool
	// Other is the version in the slot that does not run, if it was verified and nothing was
	// written to it since, so that Switch takes it; empty: none.
	Other string
	// Why the version that was tried last did not stay, as far as the driver knows.
	Why string
}

// Store keeps by name what has to outlive the process, where its disk does not.
type Store interface {
	// Load returns what was saved; fs.ErrNotExist: nothing was.
	Load(name string) ([]byte, error)
	// Save replaces it as a whole; b is text, of some kilobytes.
	Save(name string, b []byte) error
}

// Phase is where a site stands, as in the Site's status.
type Phase string

// The phases.
const (
	Available   Phase = "Available"
	Scheduled   Phase = "Scheduled"
	Downloading Phase = "Downloading"
	Installing  Phase = "Installing"
	Done        Phase = "Done"
	Failed      Phase = "Failed"
)

// Status is what is told to people.
type Status struct {
	Component string    `json:"component"`
	Item      string    `json:"item,omitempty"` // digest of what control said that it is about
	Running   string    `json:"running,omitempty"`
	Wanted    string    `json:"wanted,omitempty"`
	Phase     Phase     `json:"state,omitempty"`
	Percent   int       `json:"percent,omitempty"` // of the download
	StartsAt  time.Time `json:"startsAt,omitzero"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}
