package regional

import (
	"fmt"
	"net/http"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/regional/gateway"
	"muster.dev/muster/regional/software"
)

// startSoftware makes what serves software to sites, from control; the handler is for the
// gateway.
func startSoftware(env *role.Env, c config.Config, r config.Regional, dir string, control *http.Client, desired software.Desired) (http.Handler, error) {
	s, err := software.New(software.Options{
		Dir: dir, Centre: &delivery.Fetcher{URL: c.ControlURL() + software.Prefix, Client: control}, Identify: gateway.Identity, Desired: desired,
		MaxBytes: r.Software.CacheBytes, BytesPerSecond: r.Software.BytesPerSecond, Downloads: r.Software.AtOnce,
		Logger: env.Log.With("part", "software"), Registerer: env.Reg,
	})
	if err != nil {
		return nil, fmt.Errorf("regionals[%s].software: %w", r.Name, err)
	}
	env.Ops.Status("software", s.Status)
	return s, nil
}
