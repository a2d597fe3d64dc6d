// Command generate writes the dashboards as JSON into the directory it is started in.
package main

import (
	"fmt"
	"os"

	"muster.dev/muster/dashboards/grafana/dashboards"
	"muster.dev/muster/internal/atomicfile"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	all, err := dashboards.All()
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := atomicfile.Write(d.File(), d.JSON, 0o644); err != nil {
			return err
		}
	}
	return nil
}
