package mirror

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// How much a site tells stands in the guide, for who runs one that has more.
func TestGuideHasTheLimits(t *testing.T) {
	guide, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	l := DefaultLimits
	want := fmt.Sprintf("(%d,%03d objects and states of workloads in %d MiB, each of %d KiB)", l.Objects/1000, l.Objects%1000, l.Bytes>>20, l.Object>>10)
	if !strings.Contains(strings.Join(strings.Fields(string(guide)), " "), want) {
		t.Errorf("docs/kubernetes.md does not say %s", want)
	}
}
