package logquery

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

// LogFields is what a query may name: the short names that Muster shows, the names
// in the store, and the aliases. There is no tenant among them: that is not the
// query's to say.
func LogFields() Fields {
	f := Fields{}
	add := func(kind Kind, field string, names ...string) {
		for _, n := range append(names, field) {
			f[n] = Field{Name: field, Kind: kind}
		}
	}
	add(Text, FieldMessage, "")
	add(Time, FieldTimestamp, "timestamp")
	add(Lower, FieldSeverity, "severity", "level")
	add(Keyword, FieldStream, "stream")
	add(Keyword, FieldID, "id")
	add(Keyword, FieldNode, "node")
	add(Keyword, FieldNamespace, "namespace")
	add(Keyword, FieldPod, "pod")
	add(Keyword, FieldContainer, "container")
	add(Keyword, FieldUnit, "unit")
	add(Keyword, FieldSite, "site")
	add(Keyword, FieldRegion, "region")
	add(Labels, FieldLabels)
	for alias, field := range aliases {
		f[alias] = f[field]
	}
	return f
}
