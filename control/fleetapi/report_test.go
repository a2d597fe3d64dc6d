package fleetapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/wire"
)

// FuzzCleanReport: whatever a site reports, the API server would take the result.
func FuzzCleanReport(f *testing.F) {
	f.Add("Done", "True", "Reason", "message", "os", "1.4.2", "rev")
	f.Add("Downloading", "True", "Reason", strings.Repeat("é", 400), "agent", "v 1", strings.Repeat("a", 64))
	f.Add("Type", "True", "Reason", "message", "os", "v", "rev")
	f.Add("type\x00", "", "é", "\xff\xfe", "", "\n", strings.Repeat("a", 64))
	f.Fuzz(func(t *testing.T, typ, st, reason, msg, k, v, rev string) {
		r := clean(&wire.Report{AppliedRevision: rev, PolicyHash: rev, Versions: map[string]string{k: v},
			Conditions: []*wire.Condition{{Type: typ, Status: st, Reason: reason, Message: msg}, nil},
			Software:   []*wire.SoftwareStatus{{Component: k, Running: v, Wanted: reason, Digest: rev, State: typ, Percent: uint32(len(msg)), Since: &timestamppb.Timestamp{Seconds: int64(len(msg)) << 40, Nanos: int32(len(v)) << 28}, Message: msg}, nil, {Component: k}, {Component: "platform"}, {Component: st}}})
		for _, s := range r.software {
			if !slices.Contains(software.Components, string(s.Component)) || len(s.Running) > maxVersion || len(s.Message) > maxSoftwareMessage || s.Percent != nil && (*s.Percent > 100 || *s.Percent%10 != 0) ||
				!slices.Contains(softwareStates, s.State) || strings.ToValidUTF8(s.Message, "") != s.Message || s.Digest != "" && len(s.Digest) != 64 {
				t.Errorf("let through: %+v", s)
			}
		}
		if _, err := json.Marshal(r.software); err != nil || len(r.software) > len(software.Components) {
			t.Errorf("let through: %+v: %v", r.software, err)
		}
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

// What a site says of its software stands in its status, in an order and in steps that do
// not change by themselves.
func TestCleanSoftware(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 11, 22, 22, 0, 0, 5, time.UTC))
	r := clean(&wire.Report{Software: []*wire.SoftwareStatus{
		{Component: "agent", Running: "1.4.1", Wanted: "1.4.2", State: "Downloading", Percent: 47, Digest: strings.Repeat("a", 64), Since: at, Message: "47 %"},
		{Component: "os", Running: "6.1.0-rc1+local", State: "Done", Percent: 100},
	}})
	if len(r.problems) > 0 || len(r.software) != 2 || r.software[0].Component != v1alpha1.SoftwareOS || r.software[0].Percent != nil || r.software[0].Running != "6.1.0-rc1+local" {
		t.Fatalf("%+v, %v", r.software, r.problems)
	}
	if a := r.software[1]; *a.Percent != 40 || a.Since.Nanosecond() != 0 || a.State != v1alpha1.SoftwareDownloading || a.Message != "47 %" || a.Wanted != "1.4.2" || a.Digest == "" {
		t.Errorf("%+v", a)
	}
	for what, s := range map[string][]*wire.SoftwareStatus{
		"none of":    {{Component: "kernel"}},
		"twice":      {{Component: "os"}, {Component: "os"}},
		"no version": {{Component: "os", Running: "<b>"}},
		"no state":   {{Component: "os", State: "Great"}},
		"percent":    {{Component: "os", State: "Downloading", Percent: 4000}},
		"no time":    {{Component: "os", State: "Scheduled", StartsAt: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		"SHA-256":    {{Component: "os", Digest: "abc"}},
		"and more":   make([]*wire.SoftwareStatus, 100),
	} {
		r := clean(&wire.Report{Software: s})
		if !strings.Contains(strings.Join(r.problems, "; "), what) || len(r.software) > 1 {
			t.Errorf("%s: %v, %+v", what, r.problems, r.software)
		}
	}
}
