package validation

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/hostconfig"
)

// HostConfiguration checks the selector, and that nothing in it could do more to a host than
// it says: the same rules by which the site checks it again.
func HostConfiguration(h *v1alpha1.HostConfiguration) field.ErrorList {
	s := &h.Spec
	errs := selector(spec.Child("siteSelector"), &s.SiteSelector)
	check := func(at *field.Path, value string, err error) {
		if err != nil {
			errs = append(errs, field.Invalid(at, value, err.Error()))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Sysctls)) {
		at := spec.Child("sysctls").Key(k)
		if err := hostconfig.CheckSysctlKey(k); err != nil {
			check(at, k, err)
			continue
		}
		check(at, s.Sysctls[k], hostconfig.CheckSysctl(k, s.Sysctls[k]))
	}
	for i, e := range s.Hosts {
		at := spec.Child("hosts").Index(i)
		check(at.Child("address"), e.Address, hostconfig.CheckAddress(e.Address))
		for j, name := range e.Names {
			check(at.Child("names").Index(j), name, hostconfig.CheckHostName(name))
		}
	}
	if s.SSH != nil {
		at := spec.Child("ssh")
		for i, k := range s.SSH.UserAuthorities {
			check(at.Child("userAuthorities").Index(i), k, hostconfig.CheckPublicKey(k))
		}
		for i, u := range s.SSH.Users {
			at := at.Child("users").Index(i)
			check(at.Child("name"), u.Name, hostconfig.CheckUser(u.Name))
			for j, p := range u.Principals {
				check(at.Child("principals").Index(j), p, hostconfig.CheckPrincipal(p))
			}
			for j, k := range u.AuthorizedKeys {
				check(at.Child("authorizedKeys").Index(j), k, hostconfig.CheckPublicKey(k))
			}
			if len(u.Principals)+len(u.AuthorizedKeys) == 0 {
				check(at, u.Name, errors.New("lets nobody in; want principals or authorizedKeys, or leave the account out"))
			}
		}
	}
	if s.NTP != nil {
		for i, server := range s.NTP.Servers {
			check(spec.Child("ntp", "servers").Index(i), server, hostconfig.CheckServer(server))
		}
	}
	return errs
}
