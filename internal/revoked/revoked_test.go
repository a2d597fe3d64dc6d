package revoked

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

func open(t *testing.T, name string, now time.Time) *List {
	t.Helper()
	l, err := Open(name, 0o600, now)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// saved runs the list once: it writes what is there when it is stopped.
func saved(t *testing.T, l *List) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.Run(ctx, func(err error) { t.Error(err) })
}

func TestEntriesOutliveARestartAndNotTheirTime(t *testing.T) {
	name, now := filepath.Join(t.TempDir(), "revoked.json"), time.Unix(1_000_000, 0).UTC()
	l := open(t, name, now)
	paris, tokyo := fleet.SiteID{Tenant: "acme", Name: "paris"}, fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
	l.Add(paris, Entry{Reason: "stolen", Until: now.Add(time.Hour)})
	saved(t, l)
	l.Add(tokyo, Entry{Reason: "deleted", IssuedBefore: now, Until: now.Add(2 * time.Hour)})
	saved(t, l)
	old, fresh := &x509.Certificate{NotBefore: now.Add(-time.Second)}, &x509.Certificate{NotBefore: now}
	for what, l := range map[string]*List{"at once": l, "after a restart": open(t, name, now)} {
		for _, c := range []struct {
			id   fleet.SiteID
			cert *x509.Certificate
			want string
		}{{paris, old, "stolen"}, {paris, fresh, "stolen"}, {tokyo, old, "deleted"}, {tokyo, nil, "deleted"}, {tokyo, fresh, ""}, {fleet.SiteID{Tenant: "acme", Name: "tokyo"}, old, ""}} {
			if got, refused := l.Check(c.id, c.cert); got != c.want || refused != (c.want != "") {
				t.Errorf("%s: %s: %q, want %q", what, c.id, got, c.want)
			}
		}
	}
	if got := open(t, name, now.Add(time.Hour)).All(); len(got) != 1 || got[tokyo].Reason != "deleted" {
		t.Errorf("after an hour: %v", got)
	}
	l.Prune(now.Add(2 * time.Hour))
	if l.Len() != 0 || len(l.tenants) != 0 {
		t.Errorf("after two hours: %v", l.All())
	}
	if err := os.WriteFile(name, []byte(`{"acme/paris":{"reason":"by an earlier version"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, _ := open(t, name, now).Get(paris); !e.Until.Equal(now.Add(UnknownLife)) {
		t.Errorf("an entry of an earlier version: %+v", e)
	}
	if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name, 0o600, now); err == nil {
		t.Error("a torn list is opened")
	}
}

// What many entries cost the disk is their own bytes, and not the list once for each.
func TestManyEntriesAreAppended(t *testing.T) {
	name, now := filepath.Join(t.TempDir(), "revoked.json"), time.Now()
	l := open(t, name, now)
	size := func() int64 {
		if info, err := os.Stat(name); err == nil {
			return info.Size()
		}
		return 0
	}
	wholes, last := 0, int64(-1)
	for i := range 500 {
		l.Add(fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("s", i)}, Entry{Reason: "the site was deleted", Until: now.Add(time.Hour)})
		saved(t, l)
		if n := size(); n != last {
			wholes, last = wholes+1, n
		}
	}
	if wholes > 3 {
		t.Errorf("the list was written whole %d times for 500 entries", wholes)
	}
	if n := open(t, name, now).Len(); n != 500 {
		t.Errorf("%d of 500 are there after a restart", n)
	}
}

// A tenant that makes sites and deletes them fills its own share, and loses the entries that
// would have gone first; its neighbours lose none.
func TestATenantHasAShare(t *testing.T) {
	now := time.Now()
	l := open(t, "", now)
	tokyo := fleet.SiteID{Tenant: "umbrella", Name: "tokyo"}
	l.Add(tokyo, Entry{Reason: "stolen", Until: now.Add(time.Minute)})
	for i := range 3 * MaxPerTenant {
		l.Add(fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("s", i)}, Entry{Reason: "deleted", Until: now.Add(time.Hour + time.Duration(i))})
	}
	if n := l.Len(); n > MaxPerTenant+1 || n < MaxPerTenant*9/10 {
		t.Errorf("%d entries", n)
	}
	if _, refused := l.Check(tokyo, nil); !refused {
		t.Error("the neighbour's is gone")
	}
	if _, refused := l.Check(fleet.SiteID{Tenant: "acme", Name: fmt.Sprint("s", 3*MaxPerTenant-1)}, nil); !refused {
		t.Error("the newest is gone")
	}
}
