// Command gpx_muster_fleet is the backend of Muster's data source. Grafana starts it and
// talks to it over its plugin protocol.
package main

import (
	"os"

	"github.com/grafana/grafana-plugin-sdk-go/backend/datasource"
	"github.com/grafana/grafana-plugin-sdk-go/backend/log"

	"muster.dev/muster/dashboards/grafana/plugin/pkg/source"
)

func main() {
	if err := datasource.Manage(source.PluginID, source.New, datasource.ManageOpts{}); err != nil {
		log.DefaultLogger.Error("the plugin ends", "err", err)
		os.Exit(1)
	}
}
