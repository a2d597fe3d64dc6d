package control

import (
	"context"
	"fmt"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/desired"
	"muster.dev/muster/control/desired/content"
	"muster.dev/muster/control/software/bucket"
)

// openContent opens what keeps what sites were given.
func openContent(ctx context.Context, c config.Config) (desired.Content, error) {
	if file := c.Control.Desired.BucketFile; file != "" {
		b, err := bucket.OpenFile(ctx, file)
		if err != nil {
			return nil, fmt.Errorf("control.desired.bucketFile: %w", err)
		}
		return content.Bucket{B: b}, nil
	}
	d, err := content.Open(c.Path("control", "desired"))
	if err != nil {
		return nil, fmt.Errorf("what sites were given: %w", err)
	}
	return d, nil
}
