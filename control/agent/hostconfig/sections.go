package hostconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster.dev/muster/internal/hostconfig"
)

// Files below the root. sysctl and systemd-tmpfiles read theirs at each boot too, in the
// order of their names and the last one wins; sshd takes the first.
const (
	sysctlFile    = "etc/sysctl.d/99-zz-muster.conf"
	hugepagesFile = "etc/tmpfiles.d/zz-muster-hugepages.conf"
	hostsFile     = "etc/hosts"
	sshdConfig    = "etc/ssh/sshd_config"
	sshdFile      = "etc/ssh/sshd_config.d/00-muster.conf"
	sshCAFile     = "etc/ssh/muster_user_ca.pub"
	principalsDir = "etc/ssh/muster_principals"
	keysDir       = "etc/ssh/muster_keys"
	chronyDir     = "etc/chrony/sources.d"
	chronyFile    = chronyDir + "/muster.sources"
	timesyncFile  = "etc/systemd/timesyncd.conf.d/muster.conf"

	header = "# Made by muster-edge of the HostConfigurations of this site: changes are taken back.\n"
	begin  = "# BEGIN muster: made by muster-edge, changes are taken back"
	end    = "# END muster"
)

// value is one of the kernel's.
type value struct {
	path, want string
	label      string
	line       func(v string) string // in its drop-in
}

// section is a part of the configuration that is loaded as a whole.
type section struct {
	name string
	// needs says what the host lacks for it; nil: nothing.
	needs func() error
	// owns tells which remembered files and values are of this section.
	owns func(path string) bool
	// values stand in dropIn, one a line.
	values []value
	dropIn string
	// files are by path, of a section without values.
	files map[string][]byte
	// check and load are programs; check says whether the files can be loaded.
	check, load []string
}

const (
	procSys   = "proc/sys/"
	hugepages = "sys/kernel/mm/hugepages/"
)

// sections of the settings, in the order in which they are applied.
func (h *Host) sections(s *hostconfig.Settings) []section {
	sysctl := section{name: "sysctl", dropIn: sysctlFile, owns: func(p string) bool { return p == sysctlFile || strings.HasPrefix(p, procSys) }, load: []string{"sysctl", "--load=" + h.at(sysctlFile)}}
	for _, k := range slices.Sorted(maps.Keys(s.Sysctls)) {
		sysctl.values = append(sysctl.values, sysctlValue(k, s.Sysctls[k]))
	}
	huge := section{name: "hugepages", dropIn: hugepagesFile, owns: func(p string) bool { return p == hugepagesFile || strings.HasPrefix(p, hugepages) }, load: []string{"systemd-tmpfiles", "--create", h.at(hugepagesFile)}}
	for _, size := range slices.Sorted(maps.Keys(s.Hugepages)) {
		huge.values = append(huge.values, hugeValue(size, strconv.Itoa(s.Hugepages[size])))
	}
	hosts := section{name: "hosts", owns: func(p string) bool { return p == hostsFile }}
	if len(s.Hosts) > 0 {
		hosts.files = map[string][]byte{hostsFile: hostsBlock(s.Hosts)}
	}
	return []section{sysctl, huge, hosts, h.ssh(s), h.ntp(s)}
}

func sysctlValue(key, want string) value {
	return value{path: procSys + strings.ReplaceAll(key, ".", "/"), want: want, label: "sysctl " + key, line: func(v string) string { return key + " = " + v + "\n" }}
}

func hugeValue(size, want string) value {
	path := fmt.Sprintf("%shugepages-%dkB/nr_hugepages", hugepages, hostconfig.HugepageKB[size])
	return value{path: path, want: want, label: "hugepages " + size, line: func(v string) string { return "w /" + path + " - - - - " + v + "\n" }}
}

// former is a remembered value as it was before.
func former(path, was string) value {
	if key, ok := strings.CutPrefix(path, procSys); ok {
		return sysctlValue(strings.ReplaceAll(key, "/", "."), was)
	}
	for size, kb := range hostconfig.HugepageKB {
		if strings.Contains(path, fmt.Sprintf("hugepages-%dkB/", kb)) {
			return hugeValue(size, was)
		}
	}
	return value{path: path, want: was, label: path, line: func(string) string { return "" }}
}

func hostsBlock(hosts map[string][]string) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, begin)
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		for _, a := range slices.Sorted(slices.Values(hosts[name])) {
			fmt.Fprintf(&b, "%s %s\n", a, name)
		}
	}
	fmt.Fprintln(&b, end)
	return b.Bytes()
}

// withoutBlock is the file without what stands between our marks, and what stood there. Of a
// block that has lost its end only the mark goes: what follows may be the host's own.
func withoutBlock(body []byte) (rest, block []byte) {
	in := false
	for line := range bytes.Lines(body) {
		text := string(bytes.TrimSpace(line))
		if !bytes.HasSuffix(line, []byte("\n")) {
			line = append(bytes.Clone(line), '\n')
		}
		switch {
		case strings.HasPrefix(text, "# BEGIN muster"):
			rest = append(rest, afterMark(block, in)...)
			in, block = true, bytes.Clone(line)
		case in:
			block = append(block, line...)
			in = text != end
		default:
			rest = append(rest, line...)
		}
	}
	if in {
		return append(rest, afterMark(block, true)...), nil
	}
	return rest, block
}

func afterMark(block []byte, open bool) []byte {
	if _, after, ok := bytes.Cut(block, []byte("\n")); ok && open {
		return after
	}
	return nil
}

func (h *Host) ssh(s *hostconfig.Settings) section {
	sec := section{name: "ssh", owns: func(p string) bool { return strings.HasPrefix(p, "etc/ssh/") }, check: []string{"sshd", "-t"}, load: []string{"systemctl", "try-reload-or-restart", "sshd.service"}}
	if len(s.SSHAuthorities)+len(s.SSHUsers) == 0 {
		return sec
	}
	conf := bytes.NewBufferString(header)
	sec.files = map[string][]byte{}
	if len(s.SSHAuthorities) > 0 {
		sec.files[sshCAFile] = []byte(header + strings.Join(s.SSHAuthorities, "\n") + "\n")
	}
	for _, name := range slices.Sorted(maps.Keys(s.SSHUsers)) {
		u := s.SSHUsers[name]
		fmt.Fprintf(conf, "Match User %s\n", name)
		// Not for all: a certificate with the principal root would be root's then.
		if len(s.SSHAuthorities) > 0 {
			fmt.Fprintf(conf, "    TrustedUserCAKeys /%s\n", sshCAFile)
		}
		if len(u.Principals) > 0 {
			fmt.Fprintf(conf, "    AuthorizedPrincipalsFile /%s/%s\n", principalsDir, name)
			sec.files[principalsDir+"/"+name] = []byte(header + strings.Join(u.Principals, "\n") + "\n")
		}
		if len(u.AuthorizedKeys) > 0 {
			fmt.Fprintf(conf, "    AuthorizedKeysFile .ssh/authorized_keys /%s/%s\n", keysDir, name)
			sec.files[keysDir+"/"+name] = []byte(header + strings.Join(u.AuthorizedKeys, "\n") + "\n")
		}
	}
	fmt.Fprintln(conf, "Match all")
	sec.files[sshdFile] = conf.Bytes()
	sec.needs = func() error {
		main, err := os.ReadFile(h.at(sshdConfig))
		if err != nil {
			return fmt.Errorf("the host has no sshd that can be configured: %w", err)
		}
		if !slices.ContainsFunc(strings.Split(string(main), "\n"), func(l string) bool {
			f := strings.Fields(l)
			return len(f) > 1 && strings.EqualFold(f[0], "Include") && strings.Contains(l, "sshd_config.d/")
		}) {
			return fmt.Errorf("/%s does not include /etc/ssh/sshd_config.d/*.conf: add that line at its beginning, on the host's image", sshdConfig)
		}
		return h.accounts(slices.Sorted(maps.Keys(s.SSHUsers)))
	}
	return sec
}

// accounts wants each to be one of the host's, and none that is root by another name.
func (h *Host) accounts(names []string) error {
	passwd, err := os.ReadFile(h.at("etc/passwd"))
	if err != nil {
		return err
	}
	for _, name := range names {
		found := false
		for line := range strings.Lines(string(passwd)) {
			f := strings.Split(line, ":")
			if f[0] != name {
				continue
			}
			found = true
			if uid, err := strconv.ParseUint(strings.TrimSpace(slices.Concat(f, []string{"", "", ""})[2]), 10, 32); err != nil || uid == 0 {
				return fmt.Errorf("the host's account %s is root by another name, or its line in /etc/passwd can't be read: want an account of its own, with sudo if it needs it", name)
			}
		}
		if !found {
			return fmt.Errorf("the host has no account %s: make it on the host's image, or leave it out of ssh.users", name)
		}
	}
	return nil
}

func (h *Host) ntp(s *hostconfig.Settings) section {
	sec := section{name: "ntp", owns: func(p string) bool { return p == chronyFile || p == timesyncFile }}
	chrony := h.isDir(chronyDir)
	if sec.load = []string{"systemctl", "try-restart", "systemd-timesyncd.service"}; chrony {
		sec.load = []string{"chronyc", "reload", "sources"}
	}
	if len(s.NTP) == 0 {
		return sec
	}
	var b bytes.Buffer
	b.WriteString(header)
	path := timesyncFile
	if chrony {
		path = chronyFile
		for _, server := range s.NTP {
			fmt.Fprintf(&b, "server %s iburst\n", server)
		}
	} else {
		fmt.Fprintf(&b, "[Time]\nNTP=%s\n", strings.Join(s.NTP, " "))
	}
	sec.files = map[string][]byte{path: b.Bytes()}
	sec.needs = func() error {
		if !chrony && !h.isDir("etc/systemd") {
			return fmt.Errorf("the host has neither /%s, of chrony, nor systemd-timesyncd: install one of them", chronyDir)
		}
		return nil
	}
	return sec
}

func (h *Host) isDir(path string) bool {
	fi, err := os.Stat(h.at(path))
	return err == nil && fi.IsDir()
}

// at is a path below the root.
func (h *Host) at(path string) string { return filepath.Join(h.o.Root, path) }

// kernel reads a value of the kernel's, with single blanks.
func (h *Host) kernel(path string) (string, error) {
	b, err := os.ReadFile(h.at(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("this kernel has no such setting")
	}
	return strings.Join(strings.Fields(string(b)), " "), err
}
