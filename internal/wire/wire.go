// Package wire is the protocol between a site, its regional and control:
// protobuf messages, gRPC services with their codec, and the capability number; and, in
// http.go, what the HTTP APIs of the central roles share. Nothing else.
// The edge binary links it, so it must stay small; both ends of each stream
// import it and none of their own types appear here.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative wire.proto

// Capability is what this build speaks. A peer never uses what the other's
// number does not promise.
//
//	1 (2026-11): registration, policies down, reports up.
//	2 (2026-11): a regional takes RegionalDesired and answers with RegionalReport; it
//	sends SiteConditions, which an older control ignores. Nothing new for sites.
//	3 (2026-11): a regional takes SitesDesired. Nothing new for sites.
//	4 (2026-11): a site says what runs on its cluster (KubernetesStatus) and opens tunnels;
//	regionals pass both on.
//	5 (2026-11): a site answers OpenHost, and calls Reach: connections between sites.
//	6 (2026-11): a site says which software it can replace, and takes items of that kind; a
//	regional passes both on.
//	7 (2026-11): a site takes DesiredChange, and a regional SitesChange.
//	8 (2026-11): a site takes the configuration of its host, and says which one is in
//	effect; a regional passes that on.
//	9 (2026-11): a site answers to a request for a factory reset; a regional passes that on.
const Capability = 9

// ResetCapability is of the first sites that can be reset from the centre.
const ResetCapability = 9

// HostConfigurationCapability is of the first sites that configure their host.
const HostConfigurationCapability = 8

// ChangeCapability is of the first sites and regionals that take the change of a desired
// state instead of the whole of it.
const ChangeCapability = 7

// SoftwareCapability is of the first sites that replace their software.
const SoftwareCapability = 6

// HostCapability is of the first sites that serve hosts to other sites.
const HostCapability = 5

// MaxDown is the largest message, in bytes, that goes towards a site: MaxItems of a
// desired state have some 4 MB.
const MaxDown = 16 << 20

// MaxItems is how many items a site takes.
const MaxItems = 20_000

// KeyOf names a mirrored object within its site.
func KeyOf(m *Mirrored) string { return m.GetKind() + "/" + m.GetNamespace() + "/" + m.GetName() }

// WorkloadKey names a WorkloadStatus within its site, apart from mirrored objects.
func WorkloadKey(item string) string { return "item/" + item }

// RevisionOf names a desired state by what it holds: the SHA-256, in hex, of the
// items' digests in order. The empty state has a revision too.
func RevisionOf(items []*Item) string {
	h := sha256.New()
	for _, it := range items {
		h.Write([]byte(it.Kind + "/" + it.Name + "=" + it.Digest + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// DigestOf names a blob by what it holds: its SHA-256 in hex.
func DigestOf(blob []byte) string {
	sum := sha256.Sum256(blob)
	return hex.EncodeToString(sum[:])
}
