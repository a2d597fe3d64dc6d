package config

import (
	"strings"
	"testing"
)

func TestControlURL(t *testing.T) {
	for _, x := range []struct{ ops, fleet, want string }{
		{"127.0.0.1:9101", "", "https://127.0.0.1:9101"},
		{"10.0.0.1:9101", "control.example.com:6444", "https://10.0.0.1:9101"},
		{"0.0.0.0:9101", "control.example.com:6444", "https://control.example.com:9101"},
		{":9101", "control.example.com:6444", "https://control.example.com:9101"},
		{"[::]:9101", "[fd00::1]:6444", "https://[fd00::1]:9101"},
	} {
		c := Default()
		c.Control.OpsListen, c.Control.FleetAddress = x.ops, x.fleet
		if got := c.ControlURL(); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
		if p := c.peers()[strings.TrimPrefix(x.want, "https://")]; p.Role != "control" {
			t.Errorf("%s is taken for %+v", x.want, p)
		}
	}
}

func TestSoftwareSettings(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"control.software.dir and bucketFile": func(c *Config) { c.Control.Software.Dir, c.Control.Software.BucketFile = "a", "b" },
		"control.software.cacheBytes":         func(c *Config) { c.Control.Software.CacheBytes = 1 },
		"regionals[0].software.cacheBytes":    func(c *Config) { c.Regionals[0].Software.CacheBytes = 0 },
		"regionals[0].software.bytesPer":      func(c *Config) { c.Regionals[0].Software.BytesPerSecond = -1 },
		"regionals[0].software.atOnce":        func(c *Config) { c.Regionals[0].Software.AtOnce = 0 },
	} {
		c := Default()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
