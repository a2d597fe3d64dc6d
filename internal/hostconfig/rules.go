package hostconfig

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxHugepages of one size.
const MaxHugepages = 1 << 20

// HugepageKB are the sizes of pages that kernels know, with their size in kB as it stands
// in /sys/kernel/mm/hugepages.
var HugepageKB = map[string]int{"64Ki": 64, "2Mi": 2048, "32Mi": 32768, "512Mi": 524288, "1Gi": 1048576, "16Gi": 16777216}

// allowedSysctls are keys, and beginnings of keys (with a dot at the end), that tune a host.
// What is missing on purpose: keys that run a program or load code (kernel.core_pattern,
// kernel.modprobe, kernel.usermodehelper), that can't be taken back (kernel.modules_disabled,
// kernel.kexec_load_disabled), that take protection away (fs.protected_*, fs.suid_dumpable,
// kernel.randomize_va_space, kernel.yama, kernel.kptr_restrict, vm.mmap_min_addr), and that
// are a deed and no state (vm.drop_caches, vm.compact_memory, kernel.sysrq).
var allowedSysctls = []string{
	"fs.aio-max-nr", "fs.epoll.max_user_watches", "fs.file-max", "fs.inotify.", "fs.mqueue.", "fs.nr_open", "fs.pipe-max-size", "fs.pipe-user-pages-hard", "fs.pipe-user-pages-soft",
	"kernel.hung_task_panic", "kernel.hung_task_timeout_secs", "kernel.keys.maxbytes", "kernel.keys.maxkeys", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.numa_balancing",
	"kernel.panic", "kernel.panic_on_oops", "kernel.pid_max", "kernel.sched_autogroup_enabled", "kernel.sched_rt_period_us", "kernel.sched_rt_runtime_us", "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni",
	"kernel.softlockup_panic", "kernel.threads-max", "kernel.watchdog", "kernel.watchdog_thresh",
	"net.bridge.", "net.core.", "net.ipv4.", "net.ipv6.", "net.mptcp.", "net.netfilter.", "net.nf_conntrack_max", "net.unix.",
	"vm.admin_reserve_kbytes", "vm.dirty_background_bytes", "vm.dirty_background_ratio", "vm.dirty_bytes", "vm.dirty_expire_centisecs", "vm.dirty_ratio", "vm.dirty_writeback_centisecs",
	"vm.max_map_count", "vm.min_free_kbytes", "vm.overcommit_memory", "vm.overcommit_ratio", "vm.panic_on_oom", "vm.swappiness", "vm.user_reserve_kbytes", "vm.vfs_cache_pressure", "vm.watermark_scale_factor",
}

// refusedSysctls are among the allowed ones, and are none.
var refusedSysctls = map[string]string{
	"net.core.bpf_jit_harden": "it takes protection away",
	"net.core.bpf_jit_enable": "it takes protection away",
}

var (
	sysctlKey   = regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)
	sysctlValue = regexp.MustCompile(`^-?[A-Za-z0-9]([A-Za-z0-9_., -]*[A-Za-z0-9])?$`)
	dnsName     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	userName    = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
	principal   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@:/+-]{0,127}$`)
	keyComment  = regexp.MustCompile(`^[A-Za-z0-9_.@:/+=,() -]*$`)
	ownNames    = []string{"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "broadcasthost"}
)

// CheckSysctlKey wants a key that tunes and does no harm.
func CheckSysctlKey(key string) error {
	if len(key) > 128 || !sysctlKey.MatchString(key) {
		return errors.New("want a key with dots, such as net.core.somaxconn")
	}
	if strings.HasPrefix(key, "vm.nr_hugepages") || strings.HasPrefix(key, "vm.nr_overcommit_hugepages") {
		return errors.New("want spec.hugepages for this")
	}
	if why := refusedSysctls[key]; why != "" {
		return fmt.Errorf("is not to be set from the centre: %s", why)
	}
	if !slices.ContainsFunc(allowedSysctls, func(a string) bool { return key == a || strings.HasSuffix(a, ".") && strings.HasPrefix(key, a) }) {
		return errors.New("is not among the keys that may be set from the centre (docs/host-configuration.md has them): set it on the host's image")
	}
	return nil
}

// CheckSysctlValue wants words and numbers on one line.
func CheckSysctlValue(v string) error {
	if len(v) > 256 || !sysctlValue.MatchString(v) {
		return errors.New("want numbers and words with blanks between them, on one line of at most 256 characters, such as 4096 or '4096 87380 6291456'")
	}
	return nil
}

// leastSysctls are the least numbers of keys with which a host could no longer start a program,
// open a file or reach the centre, from where it could be helped. A * stands for one part of a
// key. They are below what the smallest hosts have by default.
var leastSysctls = map[string]int{
	"kernel.pid_max": 32768, "kernel.threads-max": 2048, "fs.file-max": 65536, "fs.nr_open": 65536,
	"net.ipv4.ip_default_ttl": 64, "net.ipv6.conf.*.hop_limit": 64, "net.ipv4.tcp_mem": 1024, "net.ipv4.udp_mem": 1024,
}

// CheckSysctl wants a value that the key may have, and that leaves the host within reach.
func CheckSysctl(key, v string) error {
	if err := CheckSysctlValue(v); err != nil {
		return err
	}
	for pattern, least := range leastSysctls {
		if ok, _ := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(key, ".", "/")); !ok {
			continue
		}
		for _, field := range strings.Fields(v) {
			if n, err := strconv.ParseUint(field, 10, 64); err != nil || n < uint64(least) {
				return fmt.Errorf("want numbers of at least %d: with less the host may be out of reach", least)
			}
		}
	}
	return nil
}

// CheckHostName wants a name that is not the host's own.
func CheckHostName(name string) error {
	if len(name) > 253 || !dnsName.MatchString(name) {
		return errors.New("want a DNS name in lower case, such as db.example.com")
	}
	if slices.Contains(ownNames, name) || CheckAddress(name) == nil {
		return errors.New("is the host's own; want the name of another machine")
	}
	return nil
}

// CheckUser wants the name of an account that is not root.
func CheckUser(name string) error {
	if !userName.MatchString(name) {
		return errors.New("want the name of an account: at most 32 lower-case letters, digits, - and _, a letter first")
	}
	if name == "root" {
		return errors.New("nobody logs in as root by order of the centre; want an account that the image has, with sudo if it needs it")
	}
	return nil
}

// CheckPrincipal wants one principal of a certificate.
func CheckPrincipal(p string) error {
	if !principal.MatchString(p) {
		return errors.New("want one principal, such as ops or grace@example.com, without blanks and options")
	}
	return nil
}

// keyTypes that sshd takes by default, with the fields of their public keys that follow the
// type (RFC 4253 section 6.6, RFC 5656 section 3.1, RFC 8709, OpenSSH's PROTOCOL.u2f).
var keyTypes = map[string]int{
	"ssh-ed25519": 1, "ecdsa-sha2-nistp256": 2, "ecdsa-sha2-nistp384": 2, "ecdsa-sha2-nistp521": 2, "ssh-rsa": 2,
	"sk-ssh-ed25519@openssh.com": 2, "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}

// minRSA is the shortest modulus that is taken, in bytes.
const minRSA = 256

// CheckPublicKey wants one line of a public key without options: TYPE BASE64 [COMMENT].
func CheckPublicKey(line string) error {
	const want = "want one public key as ssh-keygen writes it to a .pub file, such as 'ssh-ed25519 AAAA… comment', without options"
	typ, rest, _ := strings.Cut(line, " ")
	fields, ok := keyTypes[typ]
	if !ok || len(line) > 4096 {
		return errors.New(want)
	}
	body, comment, _ := strings.Cut(rest, " ")
	if !keyComment.MatchString(comment) {
		return errors.New(want + "; the comment has characters that may not stand there")
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(body)
	if err != nil || strings.ContainsAny(body, "\r\n") { // which the decoder skips
		return errors.New(want + "; its middle part is no base64")
	}
	parts := [][]byte{}
	for len(blob) > 0 {
		if len(blob) < 4 || uint64(len(blob)-4) < uint64(binary.BigEndian.Uint32(blob)) {
			return errors.New(want + "; its middle part is cut short")
		}
		n := 4 + int(binary.BigEndian.Uint32(blob))
		parts, blob = append(parts, blob[4:n]), blob[n:]
	}
	if len(parts) != 1+fields || string(parts[0]) != typ || slices.ContainsFunc(parts, func(p []byte) bool { return len(p) == 0 }) {
		return errors.New(want + "; its middle part is no " + typ + " key")
	}
	if typ == "ssh-rsa" && len(parts[2]) < minRSA {
		return fmt.Errorf("the RSA key is shorter than %d bits; want an ed25519 key", 8*minRSA)
	}
	return nil
}
