package hostconfig

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/hostconfig"
	"muster.dev/muster/internal/testkit/fakehost"
	"muster.dev/muster/internal/wire"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ops"

func everything() hostconfig.Settings {
	return hostconfig.Settings{
		Sysctls: map[string]string{"vm.swappiness": "10", "net.ipv4.tcp_rmem": "4096 87380 16777216"}, Hugepages: map[string]int{"2Mi": 64},
		Hosts: map[string][]string{"db.example.com": {"192.0.2.10", "2001:db8::10"}}, SSHAuthorities: []string{key},
		SSHUsers: map[string]hostconfig.SSHUser{"ops": {Principals: []string{"ops", "grace"}, AuthorizedKeys: []string{key}}}, NTP: []string{"ntp1.example.com", "192.0.2.123"},
	}
}

// rig is a host and what it says, pass by pass.
type rig struct {
	t *testing.T
	*fakehost.Host
	dir   string
	fs    disk.FS
	host  *Host
	conds map[string]string
	// in effect, and why not
	applied string
	err     error
	good    bool  // the last one that was wanted
	cut     error // why the centre can't be reached
	now     time.Time
}

func (r *rig) Connected() error { return r.cut }

func newRig(t *testing.T) *rig {
	r := &rig{t: t, now: time.Now(), Host: fakehost.New(t), dir: t.TempDir(), fs: disk.OS{}, conds: map[string]string{}}
	r.restart()
	return r
}

func (r *rig) restart() {
	r.t.Helper()
	var err error
	if r.host, err = New(Options{Root: r.Root, Dir: r.dir, Run: r.Run, FS: r.fs, Now: func() time.Time { return r.now }, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) SetCondition(typ, status, reason, message string) {
	r.conds[typ] = strings.TrimSpace(status + " " + reason + " " + message)
}

// want is what control would say; nil: it takes it all away.
func (r *rig) want(w *hostconfig.Wanted) bool {
	s := agent.Set{Applied: func(_, digest string, err error) { r.applied, r.err = digest, err }, Good: func(string, string) bool { r.good = true; return true }}
	if w != nil {
		blob := w.Encode()
		s.Revision = wire.DigestOf(blob)
		s.Items = []agent.SetItem{{Name: hostconfig.Name, Digest: s.Revision}}
		s.Blob = func(string) ([]byte, error) { return blob, nil }
	}
	r.host.TakeSet(s)
	r.err = nil
	return r.host.pass(r.t.Context(), r)
}

func heal(s hostconfig.Settings) *hostconfig.Wanted {
	return &hostconfig.Wanted{Settings: s, OnDrift: hostconfig.Heal}
}

func TestAppliesAndPutsBack(t *testing.T) {
	r := newRig(t)
	r.Write("etc/ssh/muster_user_ca.pub", "what somebody had here\n")
	before := r.Files()
	if !r.want(heal(everything())) || r.err != nil {
		t.Fatal(r.err)
	}
	for path, want := range map[string]string{
		"proc/sys/vm/swappiness": "10", "proc/sys/net/ipv4/tcp_rmem": "4096 87380 16777216", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "64",
		"etc/hosts":                                "127.0.0.1 localhost " + begin + " 192.0.2.10 db.example.com 2001:db8::10 db.example.com " + end,
		"etc/ssh/muster_principals/ops":            strings.TrimSpace(header) + " ops grace",
		"etc/ssh/muster_keys/ops":                  strings.TrimSpace(header) + " " + key,
		"etc/ssh/muster_user_ca.pub":               strings.TrimSpace(header) + " " + key,
		"etc/systemd/timesyncd.conf.d/muster.conf": strings.TrimSpace(header) + " [Time] NTP=ntp1.example.com 192.0.2.123",
		"etc/ssh/sshd_config.d/00-muster.conf": strings.TrimSpace(header) + " Match User ops TrustedUserCAKeys /etc/ssh/muster_user_ca.pub AuthorizedPrincipalsFile /etc/ssh/muster_principals/ops" +
			" AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/muster_keys/ops Match all",
	} {
		if got := r.Files()[path]; got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if ran := r.Ran(); !reflect.DeepEqual(ran, []string{"sysctl", "systemd-tmpfiles", "sshd", "systemctl", "systemctl"}) {
		t.Errorf("ran %v", ran)
	}

	// Once more, by another process as well: nothing is done.
	r.restart()
	if !r.want(heal(everything())) || r.err != nil || len(r.Ran()) > 0 {
		t.Errorf("again: %v", r.err)
	}
	if got := r.conds[ConditionDrift]; got != "False NoDrift" {
		t.Error(got)
	}
	// A part goes, the rest stays.
	part := everything()
	delete(part.Sysctls, "vm.swappiness")
	part.SSHUsers, part.NTP = nil, nil
	if !r.want(heal(part)) || r.err != nil {
		t.Fatal(r.err)
	}
	if f := r.Files(); f["proc/sys/vm/swappiness"] != "60" || f["proc/sys/net/ipv4/tcp_rmem"] != "4096 87380 16777216" || f["etc/ssh/muster_keys/ops"] != "" || f["etc/ssh/sshd_config.d/00-muster.conf"] == "" ||
		strings.Contains(f["etc/sysctl.d/99-zz-muster.conf"], "swappiness") {
		t.Errorf("%v", f)
	}
	// All goes: as it was before.
	if !r.want(nil) {
		t.Fatal("it can't be put back")
	}
	if after := r.Files(); !maps.Equal(after, before) {
		t.Errorf("%v\nwant %v", after, before)
	}
	if len(r.host.state.Files)+len(r.host.state.Values) > 0 {
		t.Errorf("%+v", r.host.state)
	}
}

// What can't be applied leaves the host with what it had, and says why.
func TestKeepsTheLastGood(t *testing.T) {
	good := heal(hostconfig.Settings{Sysctls: map[string]string{"vm.swappiness": "10"}, NTP: []string{"ntp1.example.com"}, SSHAuthorities: []string{key}})
	for name, c := range map[string]struct {
		breaks func(*rig)
		add    func(*hostconfig.Settings)
		why    string
	}{
		"no such key":        {func(*rig) {}, func(s *hostconfig.Settings) { s.Sysctls["net.core.nonesuch"] = "1" }, "this kernel has no such setting"},
		"the kernel says no": {func(r *rig) { r.Clamp("proc/sys/net/core/somaxconn", 128) }, func(s *hostconfig.Settings) { s.Sysctls["net.core.somaxconn"] = "999" }, "was given"},
		"no room":            {func(r *rig) { r.Clamp("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", 3) }, func(s *hostconfig.Settings) { s.Hugepages = map[string]int{"2Mi": 9} }, "memory in one piece"},
		"sshd refuses":       {func(r *rig) { r.Fail("sshd", "Bad configuration option") }, func(s *hostconfig.Settings) { s.SSHUsers = everything().SSHUsers }, "Bad configuration option"},
		"no account":         {func(r *rig) { r.Write("etc/passwd", "root:x:0:0::/:/bin/sh\n") }, func(s *hostconfig.Settings) { s.SSHUsers = everything().SSHUsers }, "no account ops"},
		"no include":         {func(r *rig) { r.Write("etc/ssh/sshd_config", "# Include /etc/ssh/sshd_config.d/*.conf\n") }, func(s *hostconfig.Settings) { s.SSHUsers = everything().SSHUsers }, "does not include"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if !r.want(good) || r.err != nil {
				t.Fatal(r.err)
			}
			c.breaks(r)
			broken := r.Files()
			more := hostconfig.Settings{}
			more.Add(&good.Settings)
			more.Sysctls = maps.Clone(more.Sysctls)
			c.add(&more)
			if r.want(heal(more)) || r.err == nil || !strings.Contains(r.err.Error(), c.why) {
				t.Fatalf("%v, want %q", r.err, c.why)
			}
			if now := r.Files(); !maps.Equal(now, broken) {
				t.Errorf("%v\nwant %v", now, broken)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	r := newRig(t)
	w := heal(everything())
	r.want(w)
	r.Write("proc/sys/vm/swappiness", "77\n")
	r.Write("etc/hosts", "127.0.0.1 localhost\n192.0.2.99 mine\n")
	r.want(w)
	f := r.Files()
	if f["proc/sys/vm/swappiness"] != "10" || !strings.Contains(f["etc/hosts"], "mine") || !strings.Contains(f["etc/hosts"], "db.example.com") {
		t.Errorf("%v", f)
	}
	if got := r.conds[ConditionDrift]; !strings.HasPrefix(got, "False Healed sysctl vm.swappiness: 77 → 10; /etc/hosts: +192.0.2.10 db.example.com") {
		t.Error(got)
	}
	// Where it shall be told alone, it stays; control need not be there for it.
	w.OnDrift = hostconfig.Report
	r.want(w)
	r.restart()
	r.Write("proc/sys/vm/swappiness", "78\n")
	r.host.pass(t.Context(), r)
	if got := r.conds[ConditionDrift]; got != "True Drifted sysctl vm.swappiness: 78 → 10" || strings.TrimSpace(r.Read("proc/sys/vm/swappiness")) != "78" {
		t.Error(got, r.Read("proc/sys/vm/swappiness"))
	}
	r.want(heal(everything()))
	r.want(heal(everything()))
	if got := strings.TrimSpace(r.Read("proc/sys/vm/swappiness")); got != "10" {
		t.Error(got)
	}
	// What can't be healed is said.
	r.Fail("sysctl", "is gone")
	r.Write("proc/sys/vm/swappiness", "79\n")
	if r.want(heal(everything())) || !strings.HasPrefix(r.conds[ConditionDrift], "True CantHeal sysctl: sysctl: is gone") {
		t.Error(r.conds[ConditionDrift])
	}
}

func TestDryRun(t *testing.T) {
	r := newRig(t)
	before := r.Files()
	would := everything()
	if !r.want(&hostconfig.Wanted{Would: &would, OnDrift: hostconfig.Heal}) || r.err != nil {
		t.Fatal(r.err)
	}
	if after := r.Files(); !maps.Equal(after, before) || len(r.Ran()) > 0 {
		t.Errorf("%v", after)
	}
	got := r.conds[ConditionDryRun]
	for _, want := range []string{"True WouldChange 9 would change; sysctl net.ipv4.tcp_rmem: 4096 131072 6291456 → 4096 87380 16777216; sysctl vm.swappiness: 60 → 10; hugepages 2Mi: 0 → 64; /etc/hosts: +192.0.2.10 db.example.com", "/etc/ssh/muster_principals/ops: +ops, +grace"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if len(got) > 1024 {
		t.Errorf("%d bytes", len(got))
	}
	if r.applied == "" {
		t.Error("it is not in effect")
	}
	r.want(heal(would))
	r.want(&hostconfig.Wanted{Settings: would, Would: &would, OnDrift: hostconfig.Heal})
	if got := r.conds[ConditionDryRun]; got != "False NothingToChange the host has all of it" {
		t.Error(got)
	}
	r.want(heal(would))
	if got := r.conds[ConditionDryRun]; got != "False NoDryRun" {
		t.Error(got)
	}
}

// A power cut before any operation of the disk: the next process brings the host to what is
// wanted all the same, and can still put back what was there before.
func TestPowerCut(t *testing.T) {
	some := everything()
	some.SSHUsers, some.NTP, some.Hugepages = nil, nil, nil
	for cut := 1; ; cut++ {
		r := newRig(t)
		before := r.Files()
		power := &cutter{FS: disk.OS{}, left: cut}
		r.fs = power
		r.restart()
		r.want(heal(some))
		over := power.left > 0
		r.fs = disk.OS{}
		r.restart()
		if !r.want(heal(some)) || r.err != nil {
			t.Fatalf("cut %d: %v", cut, r.err)
		}
		if d := r.host.differs(&r.host.state.Held); len(d) > 0 || len(r.host.state.Pending) > 0 {
			t.Fatalf("cut %d: %v %v", cut, d, r.host.state.Pending)
		}
		if !r.want(nil) {
			t.Fatalf("cut %d: it can't be put back", cut)
		}
		after := r.Files()
		maps.DeleteFunc(after, func(p, _ string) bool { return strings.Contains(p, ".tmp-") })
		if !maps.Equal(after, before) {
			t.Fatalf("cut %d: %v\nwant %v", cut, after, before)
		}
		if over {
			if cut < 20 {
				t.Errorf("only %d operations", cut)
			}
			return
		}
	}
}

// cutter ends all operations after some: the process is as good as dead.
type cutter struct {
	disk.FS
	left int
}

var errCut = errors.New("the power is gone")

func (c *cutter) step() error {
	if c.left--; c.left <= 0 {
		return errCut
	}
	return nil
}

func (c *cutter) OpenFile(path string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := c.step(); err != nil {
		return nil, err
	}
	return c.FS.OpenFile(path, flag, perm)
}

func (c *cutter) Rename(a, b string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.FS.Rename(a, b)
}

func (c *cutter) Remove(a string) error {
	if err := c.step(); err != nil {
		return err
	}
	return c.FS.Remove(a)
}

func TestRestore(t *testing.T) {
	r := newRig(t)
	before := r.Files()
	r.want(heal(everything()))
	r.restart()
	if err := r.host.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if after := r.Files(); !maps.Equal(after, before) {
		t.Errorf("%v\nwant %v", after, before)
	}
	r.Ran()
	r.restart()
	if err := r.host.Restore(context.Background()); err != nil || len(r.Ran()) > 0 {
		t.Error(err)
	}
}

func TestWithoutBlock(t *testing.T) {
	for body, want := range map[string]string{
		"":                                      "",
		"a\n":                                   "a\n",
		"a":                                     "a\n",
		"a\n" + begin + "\nx\n" + end + "\nb\n": "a\nb\n",
		begin + "\nx\nb\n":                      "x\nb\n",
		begin + "\nx\n" + begin + "\ny\n" + end + "\n": "x\n",
	} {
		if rest, _ := withoutBlock([]byte(body)); string(rest) != want {
			t.Errorf("%q: %q, want %q", body, rest, want)
		}
	}
}

func TestText(t *testing.T) {
	lines := slices.Repeat([]string{strings.Repeat("ä", 50)}, 40)
	if got := text(lines); len(got) > 1000 || !strings.HasSuffix(got, "; and 32 more") {
		t.Errorf("%d %s", len(got), got)
	}
	if got := text([]string{strings.Repeat("ä", 2000)}); len(got) > 1000 {
		t.Error(len(got))
	}
	if got := text([]string{"a", "b"}); got != "a; b" {
		t.Error(got)
	}
	if got := text(nil); got != "" {
		t.Error(got)
	}
}
