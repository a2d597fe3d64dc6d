package chronicle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/wire"
)

// edited is the After of an event of an object whose spec was changed.
const edited = "edited"

// toldEdit is what is remembered of an object whose edits are told of.
type toldEdit struct {
	UID        string            `json:"u"`
	Generation int64             `json:"g"`
	Fields     map[string]string `json:"f"` // of the spec: a digest each
}

// tellEdit tells of any change of a spec, and which of its fields changed. Values are left
// out: some are secrets, and kubectl shows them to who may read them.
func tellEdit(c *Chronicle, id identity, was string, o client.Object) (string, []wire.TimelineEvent) {
	var before toldEdit
	known := was != "" && json.Unmarshal([]byte(was), &before) == nil
	if o == nil {
		return "", []wire.TimelineEvent{c.edit(id, nil, "deleted", id.kind+" "+id.path()+" was deleted")}
	}
	now := toldEdit{UID: string(o.GetUID()), Generation: o.GetGeneration(), Fields: digests(o)}
	if known && before.UID == now.UID && before.Generation == now.Generation {
		return was, nil
	}
	value, err := json.Marshal(now)
	if err != nil {
		return was, nil
	}
	switch {
	case known && before.UID == now.UID:
		fields := changed(before.Fields, now.Fields)
		if len(fields) == 0 {
			return string(value), nil // written twice, and back
		}
		return string(value), []wire.TimelineEvent{c.edit(id, o, edited, fmt.Sprintf("%s %s was edited: %s", id.kind, id.path(), strings.Join(fields, ", ")))}
	case known:
		return string(value), []wire.TimelineEvent{c.edit(id, o, "replaced", fmt.Sprintf("%s %s was deleted and made anew", id.kind, id.path()))}
	}
	e := c.edit(id, o, "created", fmt.Sprintf("%s %s was created", id.kind, id.path()))
	e.Time = o.GetCreationTimestamp().UTC()
	if o.GetGeneration() > 1 {
		e.By = "" // whoever edited it since
	}
	return string(value), []wire.TimelineEvent{e}
}

// path is the object's name, with its namespace where there is a choice.
func (id identity) path() string {
	if id.short == "" {
		return id.name
	}
	return id.short + "/" + id.name
}

func (c *Chronicle) edit(id identity, o client.Object, what, text string) wire.TimelineEvent {
	e := wire.TimelineEvent{Time: c.o.Now(), Kind: wire.EventPolicy, Severity: wire.EventInfo, Tenant: id.tenant, Namespace: id.short, Object: id.kind + "/" + id.name, After: what, Text: text}
	if o != nil {
		e.Time, e.By = changedAt(o, e.Time), changedBy(o)
	}
	switch id.kind {
	case "VirtualSite":
		e.VirtualSites = []string{e.Namespace + "/" + id.name}
		if o != nil {
			e.Link = "/virtual-sites/" + e.Namespace + "/" + id.name + "?tenant=" + id.tenant
		}
	case "HealthPolicy", "CollectionPolicy", "SoftwarePolicy":
		e.Link = "/policies?tenant=" + id.tenant
	case "AlertRules", "LogRules", "AlertRoute":
		e.Link = "/alerts?tenant=" + id.tenant
	case "Tenant":
		e.Link = "/tenants"
	}
	if id.tenant == id.name && id.kind == "Tenant" {
		e.Tenant = id.name
	}
	if e.Tenant == "" {
		e.Tenant = fleet.PlatformTenant
	}
	return e
}

// digests of a spec's fields.
func digests(o client.Object) map[string]string {
	b, err := json.Marshal(o)
	if err != nil {
		return nil
	}
	var x struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if json.Unmarshal(b, &x) != nil {
		return nil
	}
	out := make(map[string]string, len(x.Spec))
	for k, v := range x.Spec {
		sum := sha256.Sum256(v)
		out[k] = hex.EncodeToString(sum[:6])
	}
	return out
}

func changed(a, b map[string]string) []string {
	out := map[string]bool{}
	for k, v := range a {
		if b[k] != v {
			out[k] = true
		}
	}
	for k := range b {
		if _, was := a[k]; !was {
			out[k] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}
