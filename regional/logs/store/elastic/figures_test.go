package elastic

import (
	"os"
	"testing"

	"muster.dev/muster/internal/testkit/elasticsearch"
	"muster.dev/muster/regional/logs/store/storetest"
)

func TestFigures(t *testing.T) {
	o := elasticsearch.Options{}
	if os.Getenv(storetest.EnvLines) != "" {
		o = elasticsearch.Options{Private: true, Optimize: true}
	}
	storetest.Figures(t, factory(elasticsearch.Start(t, o)))
}
