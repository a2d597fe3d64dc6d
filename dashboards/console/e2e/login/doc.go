// Package login runs the whole of a login: dex, the real API server that believes it,
// and two consoles behind a reverse proxy that ends TLS. It stands apart because a
// process holds one API server.
package login
