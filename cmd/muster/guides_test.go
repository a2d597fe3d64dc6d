package main

import (
	"testing"

	"muster.dev/muster/internal/testkit/guides"
)

// What the guides have people type is there, with its flags.
func TestCommandsOfTheGuides(t *testing.T) {
	guides.Check(t, root, "muster")
}
