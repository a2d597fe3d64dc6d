package hostconfig

import (
	"reflect"
	"strings"
	"testing"
)

const (
	key1 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ops@example.com"
)

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(string) error
		good  []string
		bad   []string
	}{
		{"sysctl key", CheckSysctlKey,
			[]string{"net.core.somaxconn", "net.ipv4.conf.eth0.rp_filter", "vm.swappiness", "fs.inotify.max_user_watches", "kernel.threads-max"},
			[]string{"", "net", "net.core", "net..core", ".net.core.x", "net.core.", "net/core/somaxconn", "net.core.../../../etc/passwd", "net.core.x\nkernel.core_pattern", "net.core.a=b", "kernel.core_pattern", "kernel.modprobe",
				"kernel.usermodehelper.bset", "kernel.modules_disabled", "kernel.sysrq", "vm.drop_caches", "vm.nr_hugepages", "fs.suid_dumpable", "net.core.bpf_jit_harden", "-net.core.somaxconn", "net.core." + strings.Repeat("x", 128)}},
		{"sysctl value", CheckSysctlValue,
			[]string{"1", "-1", "4096 87380 6291456", "bbr", "8080,9100-9200", "fq_codel"},
			[]string{"", " ", "1\n", "1\nkernel.x=1", "|/bin/sh", "/bin/sh", "$(x)", "1;2", "1\r", "1\x00", "#1", strings.Repeat("1", 257)}},
		{"host name", CheckHostName,
			[]string{"db", "db.example.com"},
			[]string{"", "localhost", "ip6-localhost", "DB", "db example", "db\n", "#db", "-db", "192.0.2.1", "../x", strings.Repeat("a", 254)}},
		{"address", CheckAddress,
			[]string{"192.0.2.1", "2001:db8::1"},
			[]string{"", "db", "192.0.2", "fe80::1%eth0", "0.0.0.0", "224.0.0.1", "192.0.2.1 x", "192.0.2.1\n"}},
		{"user", CheckUser,
			[]string{"ops", "a-b_c1"},
			[]string{"", "root", "Ops", "../ops", "ops/x", "ops\n", "ops ops", "*", "1ops", strings.Repeat("a", 33)}},
		{"principal", CheckPrincipal,
			[]string{"ops", "grace@example.com", "a:b/c+d"},
			[]string{"", "a b", "a\nb", "command=\"x\" a", "#a", `"a"`, "*", strings.Repeat("a", 129)}},
		{"key", CheckPublicKey,
			[]string{key1, strings.TrimSuffix(key1, " ops@example.com")},
			[]string{"", "ssh-ed25519", "ssh-ed25519 ", "ssh-ed25519 x", `command="sh" ` + key1, key1 + "\n", key1 + "\nssh-rsa x", "ssh-dss AAAA", "cert-authority " + key1, strings.Replace(key1, "ssh-ed25519 ", "ssh-rsa ", 1),
				strings.Replace(key1, " AAAAC3", " AAAA\nC3", 1), key1[:60], "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 x", "ssh-ed25519 //////// x", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAgEC"}},
		{"server", CheckServer,
			[]string{"ntp.example.com", "192.0.2.1", "2001:db8::1"},
			[]string{"", "ntp example", "ntp\nserver x", "ntp iburst", "-x", "ntp;x"}},
	} {
		for _, g := range c.good {
			if err := c.check(g); err != nil {
				t.Errorf("%s %q: %v", c.name, g, err)
			}
		}
		for _, b := range c.bad {
			if err := c.check(b); err == nil {
				t.Errorf("%s %q is taken", c.name, b)
			}
		}
	}
}

// A value with which a host would be out of reach is none.
func TestLeastValues(t *testing.T) {
	for value, good := range map[string]bool{
		"kernel.pid_max=4194304": true, "kernel.pid_max=301": false, "kernel.threads-max=20": false, "kernel.threads-max=2048": true, "fs.file-max=100": false, "fs.file-max=9223372036854775807": true, "fs.nr_open=1024": false,
		"net.ipv4.ip_default_ttl=1": false, "net.ipv4.ip_default_ttl=64": true, "net.ipv4.ip_default_ttl=x": false, "net.ipv6.conf.eth0.hop_limit=1": false, "net.ipv6.conf.all.hop_limit=255": true,
		"net.ipv4.tcp_mem=1 2 3": false, "net.ipv4.tcp_mem=4096 8192 1": false, "net.ipv4.tcp_mem=4096 8192 16384": true, "net.ipv4.udp_mem=0 0 0": false, "vm.swappiness=0": true, "vm.swappiness=#": false,
	} {
		key, v, _ := strings.Cut(value, "=")
		if err := CheckSysctl(key, v); (err == nil) != good {
			t.Errorf("%s: %v", value, err)
		}
	}
	if _, err := Decode((&Wanted{Settings: Settings{Sysctls: map[string]string{"net.ipv4.ip_default_ttl": "1"}}, OnDrift: Heal}).Encode()); err == nil {
		t.Error("a site takes it")
	}
}

func all() *Wanted {
	return &Wanted{OnDrift: Heal, Settings: Settings{Sysctls: map[string]string{"vm.swappiness": "10"}, Hugepages: map[string]int{"2Mi": 4}, Hosts: map[string][]string{"db": {"192.0.2.1"}},
		SSHAuthorities: []string{key1}, SSHUsers: map[string]SSHUser{"ops": {Principals: []string{"ops"}, AuthorizedKeys: []string{key1}}}, NTP: []string{"ntp.example.com"}}, Would: &Settings{Sysctls: map[string]string{"vm.swappiness": "20"}}}
}

func TestCoding(t *testing.T) {
	w, err := Decode(all().Encode())
	if err != nil || !reflect.DeepEqual(w, all()) {
		t.Fatalf("%+v, %v", w, err)
	}
	for name, breaks := range map[string]func(*Wanted){
		"onDrift": func(w *Wanted) { w.OnDrift = "Shrug" }, "sysctl": func(w *Wanted) { w.Settings.Sysctls["kernel.core_pattern"] = "core" }, "value": func(w *Wanted) { w.Settings.Sysctls["vm.swappiness"] = "1\n2" },
		"hugepages": func(w *Wanted) { w.Settings.Hugepages["3Mi"] = 1 }, "pages": func(w *Wanted) { w.Settings.Hugepages["2Mi"] = -1 }, "host": func(w *Wanted) { w.Settings.Hosts["a b"] = nil }, "address": func(w *Wanted) { w.Settings.Hosts["db"] = []string{"x"} },
		"authority": func(w *Wanted) { w.Settings.SSHAuthorities = []string{"x"} }, "user": func(w *Wanted) { w.Settings.SSHUsers["../x"] = SSHUser{} }, "principal": func(w *Wanted) { w.Settings.SSHUsers["ops"] = SSHUser{Principals: []string{"a b"}} },
		"key": func(w *Wanted) { w.Settings.SSHUsers["ops"] = SSHUser{AuthorizedKeys: []string{"x"}} }, "ntp": func(w *Wanted) { w.Settings.NTP = []string{"a b"} }, "would": func(w *Wanted) { w.Would.NTP = []string{"a b"} },
	} {
		w := all()
		breaks(w)
		if _, err := Decode(w.Encode()); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, b := range []string{"", "{}", "[]", `{"onDrift":"Heal"} {}`, strings.Repeat(" ", MaxBytes+1)} {
		if _, err := Decode([]byte(b)); err == nil {
			t.Errorf("%.20q is taken", b)
		}
	}
}

func TestTheStrongerWins(t *testing.T) {
	strong := &Settings{Sysctls: map[string]string{"vm.swappiness": "1"}, SSHAuthorities: []string{"b"}, NTP: []string{"one"}}
	weak := &Settings{Sysctls: map[string]string{"vm.swappiness": "2", "fs.file-max": "9"}, SSHAuthorities: []string{"a", "b"}, NTP: []string{"two"}, Hosts: map[string][]string{"db": {"192.0.2.1"}}}
	out := &Settings{}
	out.Add(strong)
	out.Add(weak)
	want := &Settings{Sysctls: map[string]string{"vm.swappiness": "1", "fs.file-max": "9"}, SSHAuthorities: []string{"a", "b"}, NTP: []string{"one"}, Hosts: map[string][]string{"db": {"192.0.2.1"}}}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("%+v, want %+v", out, want)
	}
	if len(strong.Sysctls) != 1 || len(weak.Sysctls) != 2 {
		t.Error("it changed what it was given")
	}
	keys := all().Settings.Keys()
	if len(keys) != 5 || keys["sysctl vm.swappiness"] != "10" || keys["hugepages 2Mi"] != "4" || keys["host db"] != "192.0.2.1" || keys["ntp"] != "ntp.example.com" {
		t.Errorf("%v", keys)
	}
}

// Whatever is taken has no line end in it, and stays the same when it is encoded again.
func FuzzDecode(f *testing.F) {
	f.Add(all().Encode())
	f.Add([]byte(`{"settings":{"sysctls":{"net.core.x":"1\n2"}},"onDrift":"Heal"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Decode(b)
		if err != nil {
			return
		}
		for k, v := range w.Settings.Keys() {
			if strings.ContainsAny(k+v, "\n\r\x00") {
				t.Fatalf("%q %q", k, v)
			}
		}
		again, err := Decode(w.Encode())
		if err != nil || string(again.Encode()) != string(w.Encode()) {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}
