package console

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/cmd/internal/role"
)

// serveTLS serves with the configured certificate, which is read again for each
// handshake once its files changed.
func serveTLS(env *role.Env, c config.Config, srv *http.Server, ln net.Listener) error {
	if _, err := tls.LoadX509KeyPair(c.Console.CertFile, c.Console.KeyFile); err != nil {
		return fmt.Errorf("console.certFile, console.keyFile: %w", err)
	}
	srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.Console.CertFile, c.Console.KeyFile)
		return &pair, err
	}}
	env.Serve("console", ln, srv)
	return nil
}
