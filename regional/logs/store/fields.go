package store

import (
	"muster.dev/muster/regional/logs/store/querystring"
)

// Names of a record's fields in the stores: the Elastic Common Schema's where it has
// one, else those of Elastic's own shippers (systemd.unit) or OpenTelemetry
// (log.iostream). What is Muster's alone stands under muster.
const (
	FieldTimestamp = "@timestamp"
	FieldMessage   = "message"
	FieldSeverity  = "log.level"
	FieldStream    = "log.iostream"
	FieldID        = "event.id"
	FieldIngested  = "event.ingested"
	FieldNode      = "host.name"
	FieldNamespace = "orchestrator.namespace"
	FieldPod       = "orchestrator.resource.name"
	FieldContainer = "container.name"
	FieldUnit      = "systemd.unit"
	FieldTenant    = "muster.tenant"
	FieldSite      = "muster.site"
	FieldRegion    = "muster.region"
	FieldLabels    = "labels"
)

// Aliases are further names for the same fields: Kubernetes' as Elastic's Filebeat
// writes them, so that what a user has saved in Kibana finds these records too.
var aliases = map[string]string{
	"kubernetes.namespace":      FieldNamespace,
	"kubernetes.pod.name":       FieldPod,
	"kubernetes.container.name": FieldContainer,
	"kubernetes.node.name":      FieldNode,
	"orchestrator.cluster.name": FieldSite,
}

// Aliases returns alias → field.
func Aliases() map[string]string {
	out := make(map[string]string, len(aliases))
	for k, v := range aliases {
		out[k] = v
	}
	return out
}

// queryFields is what a query may name: the short names that Muster shows, the names
// in the store, and the aliases. There is no tenant among them: that is not the
// query's to say.
func queryFields() querystring.Fields {
	f := querystring.Fields{}
	add := func(kind querystring.Kind, field string, names ...string) {
		for _, n := range append(names, field) {
			f[n] = querystring.Field{Name: field, Kind: kind}
		}
	}
	add(querystring.Text, FieldMessage, "")
	add(querystring.Time, FieldTimestamp, "timestamp")
	add(querystring.Lower, FieldSeverity, "severity", "level")
	add(querystring.Keyword, FieldStream, "stream")
	add(querystring.Keyword, FieldID, "id")
	add(querystring.Keyword, FieldNode, "node")
	add(querystring.Keyword, FieldNamespace, "namespace")
	add(querystring.Keyword, FieldPod, "pod")
	add(querystring.Keyword, FieldContainer, "container")
	add(querystring.Keyword, FieldUnit, "unit")
	add(querystring.Keyword, FieldSite, "site")
	add(querystring.Keyword, FieldRegion, "region")
	add(querystring.Labels, FieldLabels)
	for alias, field := range aliases {
		f[alias] = f[field]
	}
	return f
}

// Keywords are the values of a record's keyword fields, by name in the store; empty ones are left out.
func (r *Record) Keywords(yield func(field, value string)) {
	for _, kv := range [...][2]string{
		{FieldSeverity, r.Severity}, {FieldStream, r.Stream}, {FieldID, r.ID}, {FieldNode, r.Node},
		{FieldNamespace, r.Namespace}, {FieldPod, r.Pod}, {FieldContainer, r.Container}, {FieldUnit, r.Unit},
		{FieldSite, r.Site}, {FieldRegion, r.Region},
	} {
		if kv[1] != "" {
			yield(kv[0], kv[1])
		}
	}
}
