package vk8s

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// counted are the columns of kubectl's tables that say how many of how many, where the
// stock API server takes the second figure from the spec: what one site should have, and
// not all of them together.
var counted = map[schema.GroupResource]string{
	{Group: "apps", Resource: "deployments"}:  "Ready",
	{Group: "apps", Resource: "statefulsets"}: "Ready",
	{Group: "batch", Resource: "jobs"}:        "Completions",
}

// fleetTables has tables of a resource tell what the whole fleet should have. It returns a
// writer for the stock API server's answer to req, which it may change, and what is to be
// called when that is written; w itself where there is nothing to change.
func (b Backend) fleetTables(w http.ResponseWriter, req *http.Request, c call) (_ http.ResponseWriter, end func()) {
	column := counted[c.gvr.GroupResource()]
	if column == "" || b.Desired == nil || c.sub != "" || !reads(req.Method) || req.Header.Get("Upgrade") != "" || !strings.Contains(req.Header.Get("Accept"), "as=Table") {
		return w, func() {}
	}
	req.Header.Del("Accept-Encoding") // it is read here
	t := &tableWriter{ResponseWriter: w, lines: isWatch(req), column: column, at: -1, desired: func(name string) (int, bool) { return b.Desired(c.gvr.GroupResource(), c.namespace, name) }}
	return responsewriter.WrapForHTTP1Or2(t), t.end
}

func isWatch(req *http.Request) bool {
	on, err := strconv.ParseBool(req.URL.Query().Get("watch"))
	return err == nil && on
}

// tableWriter changes one column of the tables that are written to it: one document, or
// one event of a watch on each line.
type tableWriter struct {
	http.ResponseWriter
	lines   bool
	column  string
	desired func(name string) (int, bool)

	at      int // of the column; -1: no table has told yet
	pending bytes.Buffer
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *tableWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *tableWriter) WriteHeader(code int) {
	t.Header().Del("Content-Length")
	t.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (t *tableWriter) Write(b []byte) (int, error) {
	t.pending.Write(b)
	for t.lines {
		i := bytes.IndexByte(t.pending.Bytes(), '\n')
		if i < 0 {
			break
		}
		if _, err := t.ResponseWriter.Write(t.event(t.pending.Next(i + 1))); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (t *tableWriter) end() {
	if t.pending.Len() == 0 {
		return
	}
	rest := t.pending.Bytes()
	if !t.lines {
		rest = t.table(rest)
	}
	_, _ = t.ResponseWriter.Write(rest) // whoever asked may be gone
}

// event changes one of a watch; what is none stays as it is.
func (t *tableWriter) event(line []byte) []byte {
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if json.Unmarshal(line, &e) != nil || len(e.Object) == 0 {
		return line
	}
	e.Object = t.table(e.Object)
	out, err := json.Marshal(e)
	if err != nil {
		return line
	}
	return append(out, '\n')
}

// table changes a table; what is none stays as it is.
func (t *tableWriter) table(doc []byte) []byte {
	var table metav1.Table
	if json.Unmarshal(doc, &table) != nil || table.Kind != "Table" {
		return doc
	}
	// The first event of a watch alone tells of the columns.
	if i := slices.IndexFunc(table.ColumnDefinitions, func(d metav1.TableColumnDefinition) bool { return d.Name == t.column }); i >= 0 {
		t.at = i
	}
	if t.at < 0 {
		return doc
	}
	for _, row := range table.Rows {
		if len(row.Cells) <= t.at {
			continue
		}
		name, _ := row.Cells[0].(string) // as of all stock kinds
		cell, _ := row.Cells[t.at].(string)
		done, of, ok := strings.Cut(cell, "/")
		desired, known := t.desired(name)
		if !ok || !known {
			continue
		}
		_, more, some := strings.Cut(of, " ") // "0/1 of 3": a Job that three pods work at
		row.Cells[t.at] = done + "/" + strconv.Itoa(desired)
		if some {
			row.Cells[t.at] = row.Cells[t.at].(string) + " " + more
		}
	}
	out, err := json.Marshal(table)
	if err != nil {
		return doc
	}
	return append(out, '\n')
}
