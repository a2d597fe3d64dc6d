package alertroute

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// What is written out and would be dialled is asked about; links for readers, secrets
// and templates are not.
func TestDestinations(t *testing.T) {
	s, errs := Parse(spec(t, `
route: {receiver: a}
receivers:
- name: a
  webhook_configs:
  - {url: "http://127.0.0.1:9009/ingester/shutdown", http_config: {proxy_url: "http://proxy.example:3128"}}
  - {url: "https://user:pw@[::1]/x"}
  - {url: {secretKeyRef: {name: hook, key: url}}}
  - {url: "http://{{ .GroupLabels.site }}.example/"}
  slack_configs: [{api_url: "https://hooks.slack.example/x", channel: x, icon_url: "http://10.0.0.1/icon", title_link: "http://10.0.0.1/"}]
  pagerduty_configs: [{url: "http://10.0.0.2", routing_key: x, client_url: "http://10.0.0.1/", images: [{src: "http://10.0.0.1/"}]}]
  opsgenie_configs: [{api_url: "http://10.0.0.3/", api_key: x}]
  pushover_configs: [{user_key: a, token: b, url: "http://10.0.0.1/"}]
  discord_configs: [{webhook_url: "https://10.0.0.4/"}]
  telegram_configs: [{api_url: "http://localhost", bot_token: x, chat_id: 1}]
  email_configs: [{to: a@b.example, from: c@d.example, smarthost: "10.0.0.5:25"}]
`))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	var asked []string
	got := s.Unreachable(func(address string) error {
		asked = append(asked, address)
		if strings.HasSuffix(address, ":25") {
			return errors.New("refused by policy")
		}
		return nil
	})
	slices.Sort(asked)
	want := []string{"10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:443", "10.0.0.5:25", "127.0.0.1:9009", "[::1]:443", "hooks.slack.example:443", "localhost:80", "proxy.example:3128"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked about\n%v, want\n%v", asked, want)
	}
	if len(got) != 1 || got[0].Field != "spec.receivers[0].email_configs[0].smarthost" || !strings.Contains(got[0].Error(), "refused by policy") {
		t.Errorf("%v", got)
	}
	if s.Unreachable(nil) != nil {
		t.Error("nobody to ask, and yet an error")
	}
}
