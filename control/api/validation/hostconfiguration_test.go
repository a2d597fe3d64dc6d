package validation

import (
	"strings"
	"testing"

	"muster.dev/muster/control/api/v1alpha1"
)

// Each field that is wrong is named, once.
func TestHostConfiguration(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ops"
	good := v1alpha1.HostConfigurationSpec{
		Sysctls: map[string]string{"net.core.somaxconn": "4096"}, Hosts: []v1alpha1.HostEntry{{Address: "192.0.2.1", Names: []string{"db"}}},
		SSH: &v1alpha1.HostSSH{UserAuthorities: []string{key}, Users: []v1alpha1.HostSSHUser{{Name: "ops", Principals: []string{"ops"}, AuthorizedKeys: []string{key}}}},
		NTP: &v1alpha1.HostNTP{Servers: []string{"ntp.example.com"}},
	}
	if errs := HostConfiguration(&v1alpha1.HostConfiguration{Spec: good}); len(errs) > 0 {
		t.Fatal(errs)
	}
	for field, breaks := range map[string]func(*v1alpha1.HostConfigurationSpec){
		"spec.siteSelector.matchLabels": func(s *v1alpha1.HostConfigurationSpec) { s.SiteSelector.MatchLabels = map[string]string{"a b": "c"} },
		"spec.sysctls[kernel.core_pattern]": func(s *v1alpha1.HostConfigurationSpec) {
			s.Sysctls = map[string]string{"kernel.core_pattern": "|/bin/sh"}
		},
		"spec.sysctls[vm.swappiness]": func(s *v1alpha1.HostConfigurationSpec) {
			s.Sysctls = map[string]string{"vm.swappiness": "1\nkernel.panic=1"}
		},
		"spec.hosts[0].address": func(s *v1alpha1.HostConfigurationSpec) {
			s.Hosts = []v1alpha1.HostEntry{{Address: "x", Names: []string{"db"}}}
		},
		"spec.hosts[0].names[1]": func(s *v1alpha1.HostConfigurationSpec) {
			s.Hosts = []v1alpha1.HostEntry{{Address: "192.0.2.1", Names: []string{"db", "localhost"}}}
		},
		"spec.ssh.userAuthorities[0]": func(s *v1alpha1.HostConfigurationSpec) { s.SSH = &v1alpha1.HostSSH{UserAuthorities: []string{"x"}} },
		"spec.ssh.users[0].name": func(s *v1alpha1.HostConfigurationSpec) {
			s.SSH = &v1alpha1.HostSSH{Users: []v1alpha1.HostSSHUser{{Name: "../x", Principals: []string{"a"}}}}
		},
		"spec.ssh.users[0].principals[0]": func(s *v1alpha1.HostConfigurationSpec) {
			s.SSH = &v1alpha1.HostSSH{Users: []v1alpha1.HostSSHUser{{Name: "ops", Principals: []string{"a b"}}}}
		},
		"spec.ssh.users[0].authorizedKeys[0]": func(s *v1alpha1.HostConfigurationSpec) {
			s.SSH = &v1alpha1.HostSSH{Users: []v1alpha1.HostSSHUser{{Name: "ops", AuthorizedKeys: []string{"command=x " + key}}}}
		},
		"spec.ssh.users[0]": func(s *v1alpha1.HostConfigurationSpec) {
			s.SSH = &v1alpha1.HostSSH{Users: []v1alpha1.HostSSHUser{{Name: "ops"}}}
		},
		"spec.ntp.servers[0]": func(s *v1alpha1.HostConfigurationSpec) { s.NTP = &v1alpha1.HostNTP{Servers: []string{"x iburst"}} },
	} {
		s := good.DeepCopy()
		breaks(s)
		errs := HostConfiguration(&v1alpha1.HostConfiguration{Spec: *s})
		if len(errs) != 1 || !strings.HasPrefix(errs[0].Field, field) || !strings.Contains(errs[0].Detail, "want") && !strings.Contains(errs[0].Detail, "set it on") && field != "spec.siteSelector.matchLabels" {
			t.Errorf("%s: %v", field, errs)
		}
	}
}
