// Package hostconfig is what a site is told of the configuration of its host: the shapes,
// their coding, and the rules of what may stand in them. It does no I/O: control/desired
// encodes, control/agent/hostconfig decodes and applies, and admission checks what people
// write by the same rules. The edge binary links it.
//
// The rules are the wall between who may write to a tenant and root on its hosts: no value
// that they let through has a line end, leaves its file, or runs a program.
package hostconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Kind is the wire.Item kind of a Wanted, and the API's kind that it is made of; the item's
// name is Name.
const (
	Kind = "HostConfiguration"
	Name = "effective"
)

// MaxBytes of one encoded Wanted.
const MaxBytes = 1 << 20

// What to do where the host does not have any more what it was given.
const (
	Heal   = "Heal"   // it is given again, and said
	Report = "Report" // it is said
)

// Wanted is what a site's host shall have.
type Wanted struct {
	Settings Settings `json:"settings"`
	// Would are the settings as they were if nothing were a dry run: what is different at
	// the host is reported, and left as it is. nil: nothing is a dry run.
	Would *Settings `json:"would,omitempty"`
	// OnDrift is Heal or Report.
	OnDrift string `json:"onDrift"`
}

// Settings of a host. What is not named stays as the host has it.
type Settings struct {
	// Sysctls are values by key, such as net.core.somaxconn.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Hugepages are how many pages of each size, such as 2Mi.
	Hugepages map[string]int `json:"hugepages,omitempty"`
	// Hosts are addresses by name, for /etc/hosts.
	Hosts map[string][]string `json:"hosts,omitempty"`
	// SSHAuthorities are public keys, as in authorized_keys, whose certificates sshd takes.
	SSHAuthorities []string `json:"sshAuthorities,omitempty"`
	// SSHUsers say who may log in, by the name of an account that the host has.
	SSHUsers map[string]SSHUser `json:"sshUsers,omitempty"`
	// NTP are the servers that the clock follows.
	NTP []string `json:"ntp,omitempty"`
}

// SSHUser is who may log in as an account, beside whom its own files let in.
type SSHUser struct {
	Principals     []string `json:"principals,omitempty"`     // of certificates
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"` // as in authorized_keys, without options
}

// Keys are the settings one by one, such as "sysctl net.core.somaxconn", with their values:
// what two objects may set differently. Authorities are not among them, since they add up.
func (s *Settings) Keys() map[string]string {
	out := map[string]string{}
	for k, v := range s.Sysctls {
		out["sysctl "+k] = strings.Join(strings.Fields(v), " ")
	}
	for size, n := range s.Hugepages {
		out["hugepages "+size] = strconv.Itoa(n)
	}
	for name, addresses := range s.Hosts {
		out["host "+name] = strings.Join(slices.Sorted(slices.Values(addresses)), " ")
	}
	for name, u := range s.SSHUsers {
		out["ssh user "+name] = strings.Join(u.Principals, ",") + " " + strings.Join(u.AuthorizedKeys, ",")
	}
	if len(s.NTP) > 0 {
		out["ntp"] = strings.Join(s.NTP, " ")
	}
	return out
}

// Add takes from o each setting that s has not yet: the stronger is s.
func (s *Settings) Add(o *Settings) {
	s.Sysctls = added(s.Sysctls, o.Sysctls)
	s.Hugepages = added(s.Hugepages, o.Hugepages)
	s.Hosts = added(s.Hosts, o.Hosts)
	s.SSHUsers = added(s.SSHUsers, o.SSHUsers)
	s.SSHAuthorities = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.SSHAuthorities, o.SSHAuthorities))))
	if len(s.NTP) == 0 {
		s.NTP = slices.Clone(o.NTP)
	}
}

func added[V any](to, from map[string]V) map[string]V {
	if len(from) == 0 {
		return to
	}
	out := maps.Clone(from)
	maps.Copy(out, to)
	return out
}

// Encode returns the blob; equal values give equal bytes.
func (w *Wanted) Encode() []byte {
	b, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("hostconfig: encode: %v", err)) // plain data: can't fail
	}
	return b
}

// Decode parses and checks a blob. Fields that a newer control has added are ignored.
func Decode(b []byte) (*Wanted, error) {
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("host configuration: %d bytes, the limit is %d", len(b), MaxBytes)
	}
	w := &Wanted{}
	if err := json.Unmarshal(b, w); err != nil {
		return nil, fmt.Errorf("host configuration: %w", err)
	}
	if w.OnDrift != Heal && w.OnDrift != Report {
		return nil, fmt.Errorf("host configuration: onDrift: %.20q: want %s or %s", w.OnDrift, Heal, Report)
	}
	if err := w.Settings.validate(); err != nil {
		return nil, fmt.Errorf("host configuration: %w", err)
	}
	if w.Would != nil {
		if err := w.Would.validate(); err != nil {
			return nil, fmt.Errorf("host configuration: dry run: %w", err)
		}
	}
	return w, nil
}

func (s *Settings) validate() error {
	for _, k := range slices.Sorted(maps.Keys(s.Sysctls)) {
		if err := errors.Join(CheckSysctlKey(k), CheckSysctl(k, s.Sysctls[k])); err != nil {
			return fmt.Errorf("sysctl %.60q: %w", k, err)
		}
	}
	for size, n := range s.Hugepages {
		if _, ok := HugepageKB[size]; !ok || n < 0 || n > MaxHugepages {
			return fmt.Errorf("hugepages %.20q: %d: want a size of %v, and 0 to %d pages", size, n, slices.Sorted(maps.Keys(HugepageKB)), MaxHugepages)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Hosts)) {
		if err := CheckHostName(name); err != nil {
			return fmt.Errorf("host %.60q: %w", name, err)
		}
		for _, a := range s.Hosts[name] {
			if err := CheckAddress(a); err != nil {
				return fmt.Errorf("host %.60q: %.60q: %w", name, a, err)
			}
		}
	}
	for _, k := range s.SSHAuthorities {
		if err := CheckPublicKey(k); err != nil {
			return fmt.Errorf("ssh authority: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.SSHUsers)) {
		if err := CheckUser(name); err != nil {
			return fmt.Errorf("ssh user %.40q: %w", name, err)
		}
		for _, p := range s.SSHUsers[name].Principals {
			if err := CheckPrincipal(p); err != nil {
				return fmt.Errorf("ssh user %s: principal %.40q: %w", name, p, err)
			}
		}
		for _, k := range s.SSHUsers[name].AuthorizedKeys {
			if err := CheckPublicKey(k); err != nil {
				return fmt.Errorf("ssh user %s: key: %w", name, err)
			}
		}
	}
	for _, server := range s.NTP {
		if err := CheckServer(server); err != nil {
			return fmt.Errorf("ntp %.60q: %w", server, err)
		}
	}
	return nil
}

// CheckAddress wants an IP address without a zone.
func CheckAddress(a string) error {
	if ip, err := netip.ParseAddr(a); err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
		return errors.New("want the IP address of one machine, such as 192.0.2.10 or 2001:db8::10")
	}
	return nil
}

// CheckServer wants a name or an address of an NTP server.
func CheckServer(s string) error {
	if CheckAddress(s) == nil {
		return nil
	}
	if !dnsName.MatchString(s) || len(s) > 253 {
		return errors.New("want the DNS name or IP address of an NTP server, such as ntp.example.com, alone: options belong into the host's own configuration")
	}
	return nil
}
