// Command otelcol is the OpenTelemetry Collector with what a site needs of it: the
// prometheus receiver and the Prometheus remote write exporter, as its contrib
// distribution has them. It stands in a module of its own, because it wants other versions
// of what Muster uses; internal/testkit/senders builds it.
package main

import (
	"log"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusremotewriteexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
)

func main() {
	factories := func() (otelcol.Factories, error) {
		in, out := prometheusreceiver.NewFactory(), prometheusremotewriteexporter.NewFactory()
		return otelcol.Factories{
			Receivers: map[component.Type]receiver.Factory{in.Type(): in},
			Exporters: map[component.Type]exporter.Factory{out.Type(): out},
		}, nil
	}
	cmd := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Version: "0.139.0"}, Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), envprovider.NewFactory()},
		}},
	})
	if err := cmd.Execute(); err != nil {
		log.Fatal(err)
	}
}
