package conf

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type sample struct {
	Listen string   `yaml:"listen"`
	Every  Duration `yaml:"every"`
	Deep   struct {
		Size int `yaml:"size"`
	} `yaml:"deep"`
}

func (s *sample) Validate() error {
	if s.Deep.Size < 0 {
		return errors.New("deep.size: must not be negative")
	}
	return nil
}

func TestParse(t *testing.T) {
	s := sample{Listen: "default"}
	if err := Parse("f", []byte("every: 1m30s\ndeep: {size: 3}\n"), &s); err != nil {
		t.Fatal(err)
	}
	if s.Listen != "default" || s.Every.D() != 90*time.Second || s.Deep.Size != 3 {
		t.Errorf("got %+v", s)
	}
	if err := Parse("empty", nil, &s); err != nil {
		t.Errorf("an empty file means defaults: %v", err)
	}
}

func TestErrorsNameLineAndField(t *testing.T) {
	for in, want := range map[string]string{
		"listen: x\ndeep:\n  sise: 3\n":    "line 3: field sise not found",
		"every: soon\n":                    `duration "soon"`,
		"listen: a\nlisten: b\n":           "line 2",
		"deep: {size: -1}\n":               "deep.size",
		"listen: a\n---\nlisten: b\n":      "more than one YAML document",
		"deep: {size: many}\n":             "line 1: cannot unmarshal",
		"listen: [unclosed\n":              "line",
		"listen: x\nnonsense: {a: 1}\n#\n": "line 2: field nonsense not found",
	} {
		err := Parse("muster.yaml", []byte(in), &sample{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "config muster.yaml: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: err = %v, want one line with %q", in, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("every: 1m\n"))
	f.Add([]byte("deep: &a {size: 1}\nlisten: *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) { _ = Parse("fuzz", data, &sample{}) })
}
