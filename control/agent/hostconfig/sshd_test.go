package hostconfig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster.dev/muster/internal/hostconfig"
)

// The real sshd takes certificates of the authorities for the accounts that are named, and for
// no other: not for root, whose name may stand in any certificate.
func TestSSHDTakesAuthoritiesForNamedAccountsAlone(t *testing.T) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	for _, path := range []string{sshd, "/run/sshd"} { // which sshd wants as well, as root
		if _, err := os.Stat(path); err != nil {
			t.Skip("no sshd can start here: ", err)
		}
	}
	r := newRig(t)
	if !r.want(heal(hostconfig.Settings{SSHAuthorities: []string{key}, SSHUsers: map[string]hostconfig.SSHUser{"ops": {Principals: []string{"ops"}}}})) || r.err != nil {
		t.Fatal(r.err)
	}
	hostKey := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hostKey).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for user, want := range map[string]string{"ops": "/etc/ssh/muster_user_ca.pub", "root": "none", "other": "none"} {
		out, err := exec.CommandContext(t.Context(), sshd, "-T", "-h", hostKey, "-f", filepath.Join(r.Root, sshdFile), "-C", "user="+user+",host=x,addr=192.0.2.1").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.Contains(string(out), "\ntrustedusercakeys "+want+"\n") {
			t.Errorf("of %s:\n%s", user, out)
		}
	}
}

// An account that is root by another name gets nothing.
func TestRootByAnotherName(t *testing.T) {
	for _, line := range []string{"toor:x:0:0::/root:/bin/sh\n", "toor:x:00:0::/root:/bin/sh\n", "toor:x\n"} {
		r := newRig(t)
		r.Write("etc/passwd", "root:x:0:0::/root:/bin/sh\n"+line)
		r.want(heal(hostconfig.Settings{SSHUsers: map[string]hostconfig.SSHUser{"toor": {AuthorizedKeys: []string{key}}}}))
		if r.err == nil || !strings.Contains(r.err.Error(), "root by another name") || r.Files()[keysDir+"/toor"] != "" {
			t.Errorf("%q: %v", line, r.err)
		}
	}
}
