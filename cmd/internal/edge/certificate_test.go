package edge

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"

	"muster.dev/muster/internal/testkit"
	"muster.dev/muster/internal/testkit/fakeregional"
	"muster.dev/muster/internal/wire"
)

func TestCertificateOnce(t *testing.T) {
	r := fakeregional.Start(t, fakeregional.Options{})
	dir := filepath.Join(t.TempDir(), "site")
	var out strings.Builder
	o := CertificateOptions{Dir: dir, JoinOptions: JoinOptions{Out: &out}}
	if err := Certificate(t.Context(), o); err == nil || !strings.Contains(err.Error(), "give --server") {
		t.Errorf("nothing is known: err = %v", err)
	}
	first := o
	first.JoinOptions = JoinOptions{Servers: []string{r.URL()}, CAHash: r.CAHash(), Token: "-", Stdin: strings.NewReader("muster1.acme.tok.secret\n"), Site: "paris", Out: &out}
	if err := Certificate(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "site paris of tenant acme: "+filepath.Join(dir, "cert.pem")+" is good until 2") {
		t.Errorf("said %q", out.String())
	}
	before, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	r.Stop() // a good certificate needs nobody
	if err := Certificate(t.Context(), o); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "cert.pem")); err != nil || string(after) != string(before) {
		t.Errorf("another certificate than before, %v", err)
	}
	for name, bad := range map[string]CertificateOptions{
		"--dir":    {},
		"--every":  {Dir: dir, Every: -1},
		"--server": {Dir: dir, JoinOptions: JoinOptions{Token: "x"}},
		"--token":  {Dir: t.TempDir(), JoinOptions: JoinOptions{Servers: []string{"gw"}, CAHash: r.CAHash()}},
	} {
		if err := Certificate(t.Context(), bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// A service begins before somebody approves the site, and goes on.
func TestCertificateAsAService(t *testing.T) {
	r := fakeregional.Start(t, fakeregional.Options{})
	asked := make(chan struct{}, 1)
	r.OnRegister(func(*wire.RegisterRequest) (*wire.RegisterResponse, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return &wire.RegisterResponse{Tenant: "acme", Site: "paris", Message: "site paris waits for approval"}, nil
	})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	var out strings.Builder
	go func() {
		done <- Certificate(ctx, CertificateOptions{Dir: dir, Every: time.Second, JoinOptions: JoinOptions{Servers: []string{r.URL()}, CAHash: r.CAHash(), Token: "muster1.acme.tok.secret", Site: "paris", Out: &out}})
	}()
	<-asked
	r.OnRegister(nil)
	testkit.EventuallyTrue(t, "it is approved", func() bool {
		_, err := os.Stat(filepath.Join(dir, "cert.pem"))
		return err == nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if said := out.String(); !strings.HasPrefix(said, "site paris waits for approval\n") {
		t.Errorf("said %q", said)
	}
}

func TestSampleOfPrometheus(t *testing.T) {
	c, err := config.LoadFile(filepath.Join("..", "..", "..", "deploy", "samples", "prometheus-agent", "prometheus.yml"), true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RemoteWriteConfigs[0].Validate(model.UTF8Validation); err != nil {
		t.Error(err)
	}
}
