package routes

import (
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/alerting/amclient"
	"muster.dev/muster/internal/testkit"
	realam "muster.dev/muster/internal/testkit/alertmanager"
)

// What an Alertmanager that runs elsewhere says against the merged routes is told, and
// one that is away does not keep the others from reading them.
func TestExternalAlertmanagerRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "external", "alertmanager.yml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{route: {receiver: none}, receivers: [{name: none}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	url := realam.Start(t, file)
	running := func() string {
		c, err := amclient.New(amclient.Options{URLs: []string{url}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Config.Original
	}
	reloads := 0
	count := testkit.RoundTripper(func(r *http.Request) (*http.Response, error) {
		reloads++
		return http.DefaultTransport.RoundTrip(r)
	})
	e := NewExternal(file, []string{"http://127.0.0.1:1", url + "/"}, &http.Client{Transport: count}, slog.New(slog.DiscardHandler))
	good := []byte(`{route: {receiver: phone}, receivers: [{name: phone}]}`)
	if err := e.Apply(good); err != nil {
		t.Errorf("one of two is away: %v", err)
	}
	if got := running(); !strings.Contains(got, "phone") {
		t.Errorf("the other runs %s", got)
	}
	reloads = 0
	if err := e.Apply(good); err != nil || reloads != 1 {
		t.Errorf("the same again: %v, %d asked; want only the one that was away", err, reloads)
	}
	e.urls = e.urls[:1]
	var later *TryLater
	if err := e.Apply(good); !errors.As(err, &later) {
		t.Errorf("nobody is there: %v", err)
	}
	e.urls = []string{url + "/"}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: the file holds secrets", info.Mode(), err)
	}
	if err := e.Apply([]byte(`{route: {receiver: nobody}, receivers: [{name: phone}]}`)); err == nil || !strings.Contains(err.Error(), "nobody") && !strings.Contains(err.Error(), "reload") {
		t.Errorf("routes that it refuses: %v", err)
	}
	if got := running(); !strings.Contains(got, "receiver: phone") {
		t.Errorf("after refused routes it runs %s", got)
	}
}
