package config

import (
	"errors"
	"fmt"
	"net"
)

// Set tells whether there is a repository.
func (r Repository) Set() bool { return r.Dir != "" || r.BucketFile != "" }

func (r Repository) validate() error {
	switch {
	case r.Dir != "" && r.BucketFile != "":
		return errors.New("dir and bucketFile exclude each other: set where the repository lies, once")
	case r.CacheBytes < 1<<30:
		return fmt.Errorf("cacheBytes: %d: want at least 1073741824 (1 GiB), and more than the largest file", r.CacheBytes)
	}
	return nil
}

func (d Downloads) validate() error {
	switch {
	case d.CacheBytes < 1<<30:
		return fmt.Errorf("cacheBytes: %d: want at least 1073741824 (1 GiB), and more than the largest file", d.CacheBytes)
	case d.BytesPerSecond != 0 && d.BytesPerSecond < 1<<20:
		return fmt.Errorf("bytesPerSecond: %d: want at least 1048576 (1 MiB), or 0 for no limit", d.BytesPerSecond)
	case d.AtOnce < 1:
		return fmt.Errorf("atOnce: %d: want at least 1", d.AtOnce)
	}
	return nil
}

// OnlineKeysDir has the keys with which control signs that nothing has changed.
func (c *Config) OnlineKeysDir() string {
	if d := c.Control.Software.OnlineKeys; d != "" {
		return d
	}
	return c.Path("control", "software-keys")
}

// ControlURL is where other roles reach what control has for them beside the fleet API:
// opsListen, and where that is all addresses of a machine, the machine of fleetAddress.
func (c *Config) ControlURL() string {
	host, port, err := net.SplitHostPort(c.Control.OpsListen)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		if at, _, err := net.SplitHostPort(c.Control.FleetEndpoint()); err == nil {
			return c.roleURL(net.JoinHostPort(at, port))
		}
	}
	return c.roleURL(c.Control.OpsListen)
}
