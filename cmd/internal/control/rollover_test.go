package control

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
)

func TestRolloverStepByStep(t *testing.T) {
	c := config.Default()
	c.DataDir = t.TempDir()
	open := func() *pki.CA {
		ca, err := pki.Open(pki.Options{Dir: filepath.Join(Dir(c), "pki"), TrustDomain: c.TrustDomain})
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	first := open().Hash()
	if err := Rollover(c, "activate", false, &bytes.Buffer{}); err == nil {
		t.Error("activated what was not prepared")
	}
	for _, step := range RolloverSteps {
		var out bytes.Buffer
		if err := Rollover(c, step, false, &out); step != "prepare" && (err == nil || !strings.Contains(err.Error(), "--now")) {
			t.Fatalf("%s at once: %q, %v", step, out.String(), err)
		}
		if err := Rollover(c, step, true, &out); err != nil || !strings.Contains(out.String(), "done") {
			t.Fatalf("%s: %q, %v", step, out.String(), err)
		}
		// What control does as it takes the step up.
		if err := ensureCertificates(open(), c); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
	}
	if ca := open(); ca.Hash() == first || len(ca.Bundle()) != 1 {
		t.Errorf("hash %s, was %s; %d trusted", ca.Hash(), first, len(ca.Bundle()))
	}
}
