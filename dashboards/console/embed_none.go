//go:build !console

package console

import "io/fs"

// UI returns nil: this binary was built without the tag "console", so that the Go
// build and tests need no Node. The server then shows a page that says so.
func UI() fs.FS { return nil }
