package console

import (
	_ "embed"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"
)

//go:embed openapi.yaml
var openAPISource []byte

func openAPIJSON() ([]byte, error) {
	b, err := yaml.YAMLToJSONStrict(openAPISource)
	if err != nil {
		return nil, fmt.Errorf("console: openapi.yaml: %w", err)
	}
	return b, nil
}

func (c *Console) getOpenAPI(w http.ResponseWriter, _ *call) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(c.openapi)
	return nil
}
