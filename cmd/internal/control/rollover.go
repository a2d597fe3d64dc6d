package control

import (
	"fmt"
	"io"
	"path/filepath"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/pki"
)

// Steps of a change of the fleet's CA, in their order.
var RolloverSteps = []string{"prepare", "activate", "retire"}

// Rollover makes one step of a change of the fleet's CA, on the files that control
// keeps; control takes it up when it is started again. Nobody is locked out as long as
// the steps are a site's certificate's life apart.
func Rollover(c config.Config, step string, out io.Writer) error {
	ca, err := pki.Open(pki.Options{Dir: filepath.Join(Dir(c), "pki"), TrustDomain: c.TrustDomain, SiteLife: c.Control.SiteCertLife.D()})
	if err != nil {
		return err
	}
	next := ""
	switch step {
	case "prepare":
		err, next = ca.PrepareRollover(), "sites learn of it as they renew: wait for "+c.Control.SiteCertLife.D().String()+", and copy the regionals' identities to their machines, before `muster ca activate`"
	case "activate":
		err, next = ca.ActivateRollover(), "it signs from now on; what the old one signed is good until `muster ca retire`, which comes when no certificate of it is left, after "+c.Control.SiteCertLife.D().String()+" at the earliest"
	case "retire":
		err, next = ca.RetireOld(), "certificates of the old one are refused; a site that was away all the while enrols again"
	default:
		return fmt.Errorf("step %q: want prepare, activate or retire", step)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: done, CA %s, %d trusted. Restart muster control; %s.\n", step, ca.Hash(), len(ca.Bundle()), next)
	return err
}
