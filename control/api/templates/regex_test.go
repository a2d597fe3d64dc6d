package templates

import (
	"runtime"
	"strings"
	"testing"
)

// A regular expression that is large once it is compiled is refused without being so: an
// object of a megabyte has hundreds of them.
func TestLargeRegexIsNotCompiled(t *testing.T) {
	text := `{{ match "` + strings.Repeat(".{999}", 500) + `" .Name }}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := Dialect{}.Check(text)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "instructions") {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("%d MiB were taken", took>>20)
	}
}
