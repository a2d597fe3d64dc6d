//go:build console

package console

import (
	"embed"
	"io/fs"
)

//go:embed all:ui/dist
var dist embed.FS

// UI returns the built web console, with index.html at its root.
func UI() fs.FS {
	sub, err := fs.Sub(dist, "ui/dist")
	if err != nil {
		panic(err) // the path is a constant that the directive above has checked
	}
	return sub
}
