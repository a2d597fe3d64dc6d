// Package protocoltest is the plugin as Grafana meets it, for tests: the real binary is
// started with Grafana's handshake and asked over gRPC, and a console stands behind it
// whose every answer is held to the API's document. It is for tests alone.
package protocoltest
