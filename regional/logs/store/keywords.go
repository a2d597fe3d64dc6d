package store

import "muster.dev/muster/internal/logquery"

// Keywords are the values of a record's keyword fields, by name in the store; empty ones are left out.
func (r *Record) Keywords(yield func(field, value string)) {
	for _, kv := range [...][2]string{
		{logquery.FieldSeverity, r.Severity}, {logquery.FieldStream, r.Stream}, {logquery.FieldID, r.ID}, {logquery.FieldNode, r.Node},
		{logquery.FieldNamespace, r.Namespace}, {logquery.FieldPod, r.Pod}, {logquery.FieldContainer, r.Container}, {logquery.FieldUnit, r.Unit},
		{logquery.FieldSite, r.Site}, {logquery.FieldRegion, r.Region},
	} {
		if kv[1] != "" {
			yield(kv[0], kv[1])
		}
	}
}
