package vk8s

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"muster.dev/muster/internal/workload"
)

// cellOf is what stands in a cell, of what stood there and the pods of all sites.
type cellOf func(cell string, p workload.Pods) string

func readyOf(_ string, p workload.Pods) string { return fmt.Sprintf("%d/%d", p.Ready, p.Desired) }

// counted are the columns of kubectl's tables that tell of pods, where the stock API server
// speaks in terms of the spec: of one site, and not of all of them together.
var counted = map[schema.GroupResource]map[string]cellOf{
	{Group: "apps", Resource: "deployments"}: {
		"Ready":      readyOf,
		"Up-to-date": func(_ string, p workload.Pods) string { return strconv.Itoa(p.Updated) },
		"Available":  func(_ string, p workload.Pods) string { return strconv.Itoa(p.Available) },
	},
	{Group: "apps", Resource: "statefulsets"}: {
		"Ready": readyOf,
	},
	{Group: "batch", Resource: "jobs"}: {
		"Completions": func(cell string, p workload.Pods) string {
			_, more, some := strings.Cut(cell, " ") // "0/1 of 3": a Job that three pods work at
			if some {
				more = " " + more
			}
			return readyOf(cell, p) + more
		},
	},
}

// fleetTables has tables of a resource tell what the whole fleet should have. It returns a
// writer for the stock API server's answer to req, which it may change, and what is to be
// called when that is written; w itself where there is nothing to change. watch is whether the
// stock server takes it for one, which it does of "?watch=" too.
func (b Backend) fleetTables(w http.ResponseWriter, req *http.Request, c call, watch bool) (_ http.ResponseWriter, end func()) {
	columns := counted[c.gvr.GroupResource()]
	if columns == nil || b.Pods == nil || c.sub != "" || !reads(req.Method) || req.Header.Get("Upgrade") != "" || !strings.Contains(req.Header.Get("Accept"), "as=Table") {
		return w, func() {}
	}
	req.Header.Del("Accept-Encoding") // it is read here
	t := &tableWriter{ResponseWriter: w, lines: watch, columns: columns, pods: func(name string) (workload.Pods, bool) { return b.Pods(c.gvr.GroupResource(), c.namespace, name) }}
	return responsewriter.WrapForHTTP1Or2(t), t.end
}

// tableWriter changes columns of the tables that are written to it: one document, or
// one event of a watch on each line.
type tableWriter struct {
	http.ResponseWriter
	lines   bool
	columns map[string]cellOf
	pods    func(name string) (workload.Pods, bool)

	at      map[int]cellOf // by where the column is; nil: no table has told yet
	pending bytes.Buffer
	begun   bool
	other   bool // it is no JSON, such as protobuf, which was asked for first
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *tableWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *tableWriter) WriteHeader(code int) {
	t.begin()
	t.ResponseWriter.WriteHeader(code)
}

func (t *tableWriter) begin() {
	if t.begun {
		return
	}
	t.begun, t.other = true, !strings.HasPrefix(t.Header().Get("Content-Type"), runtime.ContentTypeJSON)
	if !t.other {
		t.Header().Del("Content-Length")
	}
}

// Write implements http.ResponseWriter.
func (t *tableWriter) Write(b []byte) (int, error) {
	if t.begin(); t.other {
		return t.ResponseWriter.Write(b)
	}
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
	if len(table.ColumnDefinitions) > 0 { // the first event of a watch alone tells of the columns
		t.at = map[int]cellOf{}
		for i, d := range table.ColumnDefinitions {
			if cell := t.columns[d.Name]; cell != nil {
				t.at[i] = cell
			}
		}
	}
	if len(t.at) == 0 {
		return doc
	}
	for _, row := range table.Rows {
		if len(row.Cells) == 0 {
			continue
		}
		name, _ := row.Cells[0].(string) // as of all stock kinds
		pods, known := t.pods(name)
		if !known {
			continue
		}
		for i, cell := range t.at {
			if i < len(row.Cells) {
				row.Cells[i] = cell(fmt.Sprint(row.Cells[i]), pods)
			}
		}
	}
	out, err := json.Marshal(table)
	if err != nil {
		return doc
	}
	return append(out, '\n')
}
