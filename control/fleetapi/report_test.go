package fleetapi

import (
	"strings"
	"testing"

	"muster.dev/muster/internal/wire"
)

// FuzzCleanReport: whatever a site reports, the API server would take the result.
func FuzzCleanReport(f *testing.F) {
	f.Add("Type", "True", "Reason", "message", "os", "v", "rev")
	f.Add("type\x00", "", "é", "\xff\xfe", "", "\n", strings.Repeat("a", 64))
	f.Fuzz(func(t *testing.T, typ, st, reason, msg, k, v, rev string) {
		r := clean(&wire.Report{AppliedRevision: rev, PolicyHash: rev, Versions: map[string]string{k: v},
			Conditions: []*wire.Condition{{Type: typ, Status: st, Reason: reason, Message: msg}, nil}})
		for _, c := range r.conditions {
			if len(c.Type) > 63 || c.Reason == "" || len(c.Reason) > maxReason || len(c.Message) > maxMessage ||
				(c.Status != "True" && c.Status != "False" && c.Status != "Unknown") || strings.ToValidUTF8(c.Message, "") != c.Message {
				t.Errorf("let through: %+v", c)
			}
		}
		if len(r.versions) > maxVersions || len(r.problems) > maxProblems+1 || (r.appliedRevision != "" && len(r.appliedRevision) != 64) {
			t.Errorf("let through: %+v", r)
		}
	})
}
