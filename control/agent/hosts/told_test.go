package hosts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"muster.dev/muster/control/agent/hosts"
	"muster.dev/muster/internal/testkit"
	broker "muster.dev/muster/regional/hosts"
)

// told are the series that a site has of its virtual hosts, by name and values of labels.
func (s *site) told(t *testing.T) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s.hosts)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			out[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// Both ends tell of a connection: with whom it was, how much passed, and while it fails, why.
func TestTold(t *testing.T) {
	w := newWorld(t, func(o *broker.Options) { o.AnswerWithin = time.Minute })
	paris, berlin := startSite(t, acme("paris"), w.r), startSite(t, acme("berlin"), w.r)
	h := db()
	h.Providers = []string{"berlin"}
	w.tell(h)
	says := func(of *site, status, reason, message string) {
		t.Helper()
		testkit.Eventually(t, of.id.Name+" says "+reason, func() error {
			if status == "False" { // whoever is not told of the host yet counts nothing
				if _, _, err := paris.ask("shop/db", nil); err == nil {
					return errors.New("a Service answers that is not there")
				}
			}
			c := w.r.Seen(of.id).Condition(hosts.ConditionReachable)
			if c.GetStatus() != status || c.GetReason() != reason || !strings.Contains(c.GetMessage(), message) {
				return fmt.Errorf("it says %v", c)
			}
			return nil
		})
	}
	says(berlin, "False", "ServiceFails", "shop/db, served here: service db: connection refused")
	says(paris, "False", "Unreachable", "shop/db: ")

	berlin.serve(echo(t, "berlin"))
	if _, _, err := paris.ask("shop/db", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	const fine = "the last attempts at its virtual hosts succeeded"
	says(paris, "True", "Reachable", fine)
	says(berlin, "True", "Reachable", fine)
	heard := len("berlin\n") + len("hello")
	for _, end := range []struct {
		of             *site
		with           string
		sent, received int
	}{{paris, "out shop/db berlin", len("hello"), heard}, {berlin, "in shop/db paris", heard, len("hello")}} {
		testkit.EventuallyTrue(t, end.of.id.Name+" has told all", func() bool {
			return end.of.told(t)["muster_agent_host_connections "+end.with] == 0
		})
		got := end.of.told(t)
		if got["muster_agent_host_sent_bytes_total "+end.with] != float64(end.sent) || got["muster_agent_host_received_bytes_total "+end.with] != float64(end.received) {
			t.Errorf("%s tells %v, want %d bytes sent and %d received", end.of.id.Name, got, end.sent, end.received)
		}
	}
}
