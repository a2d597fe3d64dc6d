package control

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
	"muster.dev/muster/internal/disk"
)

// Steps of a change of the fleet's CA, in their order.
var RolloverSteps = []string{"prepare", "activate", "retire"}

// Rollover makes one step of a change of the fleet's CA, on the files that control
// keeps. Control takes it up within seconds, regionals on its machine with it, and sites
// as they renew their certificates: a step that comes before all have had the time for
// that is refused, unless it must be now.
func Rollover(c config.Config, step string, now bool, out io.Writer) error {
	dir, life := filepath.Join(Dir(c), "pki"), c.Control.SiteCertLife.D()
	ca, err := pki.Open(pki.Options{Dir: dir, TrustDomain: c.TrustDomain, SiteLife: life})
	if err != nil {
		return err
	}
	lock, err := disk.LockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := ca.Reload(); err != nil {
		return err
	}
	early := func(before time.Time, what string) error {
		at := before.Add(life)
		if now || before.IsZero() || !time.Now().Before(at) {
			return nil
		}
		return fmt.Errorf("%s: the CA was %s at %s; sites that have not renewed since would be locked out; wait until %s, or give --now", step, what, before.Local().Format(time.DateTime), at.Local().Format(time.DateTime))
	}
	next := ""
	switch step {
	case "prepare":
		err, next = ca.PrepareRollover(), fmt.Sprintf("sites learn of it as they renew: copy the roles' identities to machines that are not this one, and go on with `muster ca activate` in %s", life)
	case "activate":
		if err = early(ca.Prepared(), "prepared"); err == nil {
			err, next = ca.ActivateRollover(), fmt.Sprintf("it signs from now on: copy the roles' identities and kubeconfigs to machines that are not this one, and go on with `muster ca retire` in %s", life)
		}
	case "retire":
		if err = early(ca.Activated(), "activated"); err == nil {
			err, next = ca.RetireOld(), "certificates of the old one are refused; a site that was away all the while has to join anew"
		}
	default:
		return fmt.Errorf("step %q: want prepare, activate or retire", step)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: done, CA %s, %d trusted. A running control takes it up by itself; %s.\n", step, ca.Hash(), len(ca.Bundle()), next)
	return err
}
