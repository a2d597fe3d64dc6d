package intake

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"muster.dev/muster/regional/logs/store"
)

// line is a record while it is read: slices of the message that it came in, so
// that reading a record allocates nothing. Its tenant, site and region are not in
// it: they belong to the batch, and come from the certificate.
type line struct {
	time  int64 // nanoseconds since 1970; 0: none was found
	index int   // of the record in its message: with the message's hash, its id
	// received says that the time is that of receipt, and is a part of the id: the same
	// message received again is another line.
	received bool

	node, namespace, pod, container, unit, stream, severity, message []byte

	labels []label // what else the record holds, flat
}

type label struct{ key, value []byte }

// maxName bounds what names something, in bytes; the longest that Kubernetes has
// are 253.
const maxName = 253

// reader takes records apart. Its buffers are used again; it is for one goroutine.
type reader struct {
	maxLine int
	text    []byte // texts that are not in the message as they are

	repaired, truncated, unlabelled int // fields that were no UTF-8, messages that were too long, labels too many
}

// candidates for one field, best first; the lower index wins.
type pick struct {
	rank int
	val  value
	text []byte // instead of val
}

func (p *pick) offer(rank int, v value) {
	if p.rank == 0 || rank < p.rank {
		p.rank, p.val, p.text = rank, v, nil
	}
}

func (p *pick) offerText(rank int, t []byte) {
	if len(t) > 0 && (p.rank == 0 || rank < p.rank) {
		p.rank, p.val, p.text = rank, value{}, t
	}
}

// get returns what is found, for a caller that cuts it to limit bytes.
func (p *pick) get(limit int) []byte {
	if p.text != nil {
		return p.text
	}
	return p.val.textUpTo(limit)
}

// found is what the fields of one record may be.
type found struct {
	message, node, namespace, pod, container, unit, stream, severity, time pick

	others bool // there are fields that went nowhere
}

// read takes a record apart. tag is the sender's (empty over HTTP); meta is the
// entry's metadata, if it has any; group the attributes of the group it stands in.
// wantTime says that the record's own fields have the time.
//
// The fields are those of Fluent Bit's kubernetes filter, of its systemd input
// (with and without strip_underscores and lowercase), of the CRI and docker
// parsers, of plain JSON loggers, and of OpenTelemetry.
func (r *reader) read(l *line, tag []byte, rec, meta, group value, wantTime bool) {
	var f found
	rec.each(func(key []byte, v value) bool { f.field(key, v); return true })
	fromMeta(&f, meta)
	fromGroup(&f, group)
	fromTag(&f, tag)

	if wantTime && f.time.rank > 0 {
		if ns, ok := fieldTime(f.time.val); ok {
			l.time = ns
		}
	}
	l.node, l.namespace, l.pod = r.name(&f.node), r.name(&f.namespace), r.name(&f.pod)
	l.container, l.unit, l.stream = r.name(&f.container), r.name(&f.unit), r.name(&f.stream)
	r.text = r.text[:0]
	r.message(l, &f, rec)
	l.labels = l.labels[:0]
	r.trace(l, meta)
	r.labels(l, &f, rec)
	r.metadata(l, meta, group)
	l.severity = nil
	if f.severity.rank > 0 {
		l.severity = severityOf(f.severity.val, f.severity.text, f.severity.rank)
	}
	if l.severity == nil {
		l.severity = guessSeverity(l.message)
	}
}

// severity ranks above this one hold OpenTelemetry's numbers.
const rankOTLPNumber = 20

// field sorts one top-level field in. A lower rank is the better source.
func (f *found) field(key []byte, v value) {
	switch string(key) {
	case "log", "MESSAGE", "message", "msg", "short_message":
		f.message.offer(messageRank(key), v)

	case "severity":
		f.severity.offer(1, v)
	case "level":
		f.severity.offer(2, v)
	case "lvl", "loglevel", "log_level", "log.level", "severity_text", "levelname":
		f.severity.offer(3, v)
	case "PRIORITY", "priority":
		f.severity.offer(4, v)
	case "severity_number":
		f.severity.offer(rankOTLPNumber, v)

	case "kubernetes":
		fromKubernetes(f, v)
	case "namespace", "namespace_name":
		f.namespace.offer(5, v)
	case "pod", "pod_name":
		f.pod.offer(5, v)
	case "container", "container_name":
		f.container.offer(5, v)
	case "node", "node_name":
		f.node.offer(2, v)
	case "_HOSTNAME", "_hostname", "HOSTNAME":
		f.node.offer(3, v)
	case "host", "hostname":
		f.node.offer(4, v)

	case "_SYSTEMD_UNIT", "_systemd_unit", "SYSTEMD_UNIT", "systemd_unit", "unit":
		f.unit.offer(1, v)
	case "UNIT": // systemd about a unit
		f.unit.offer(2, v)
	case "_SYSTEMD_USER_UNIT", "_systemd_user_unit":
		f.unit.offer(3, v)
	case "SYSLOG_IDENTIFIER", "syslog_identifier", "ident", "_COMM":
		f.unit.offer(4, v)

	case "stream":
		f.stream.offer(1, v)
	case "_TRANSPORT", "_transport", "TRANSPORT":
		f.stream.offer(2, v)

	// Fluent Bit's http output writes the entry's time into "date".
	case "date":
		f.time.offer(1, v)
	case "@timestamp":
		f.time.offer(2, v)
	case "timestamp", "ts":
		f.time.offer(3, v)
	case "time":
		f.time.offer(4, v)
	default:
		f.others = f.others || !known(key)
	}
}

// messageRank orders the fields that may be the text of the line: first those that
// hold all of it. 0: none of them.
func messageRank(key []byte) int {
	switch string(key) {
	case "log":
		return 1
	case "MESSAGE":
		return 2
	case "message":
		return 3
	case "msg":
		return 4
	case "short_message":
		return 5
	}
	return 0
}

// known are fields that say nothing about the line itself: the CRI parser's flag,
// and what the journal adds to every entry.
func known(key []byte) bool {
	switch string(key) {
	case "logtag", "_p", "tag", "SYSLOG_FACILITY", "SYSLOG_PID", "SYSLOG_TIMESTAMP", "SYSLOG_RAW", "CODE_FILE", "CODE_LINE", "CODE_FUNC", "MESSAGE_ID",
		"INVOCATION_ID", "JOB_ID", "JOB_TYPE", "JOB_RESULT", "TID", "syslog_facility", "syslog_pid", "syslog_timestamp":
		return true
	}
	return len(key) > 0 && key[0] == '_'
}

// consumed are the fields that read finds a place for: they become no labels.
func consumed(key []byte) bool {
	switch string(key) {
	case "log", "MESSAGE", "message", "msg", "short_message", "severity", "level", "lvl", "loglevel", "log_level", "log.level", "severity_text", "levelname",
		"PRIORITY", "priority", "severity_number", "kubernetes", "namespace", "namespace_name", "pod", "pod_name", "container", "container_name",
		"node", "node_name", "HOSTNAME", "host", "hostname", "SYSTEMD_UNIT", "systemd_unit", "unit", "UNIT", "SYSLOG_IDENTIFIER", "syslog_identifier", "ident",
		"stream", "TRANSPORT", "date", "@timestamp", "timestamp", "ts", "time":
		return true
	}
	return known(key)
}

func fromKubernetes(f *found, v value) {
	v.each(func(key []byte, v value) bool {
		switch string(key) {
		case "namespace_name":
			f.namespace.offer(1, v)
		case "pod_name":
			f.pod.offer(1, v)
		case "container_name":
			f.container.offer(1, v)
		case "host", "node_name":
			f.node.offer(1, v)
		}
		return true
	})
}

// fromMeta reads the metadata that Fluent Bit keeps of an OpenTelemetry record.
func fromMeta(f *found, meta value) {
	meta.each(func(key []byte, v value) bool {
		if string(key) != "otlp" {
			return true
		}
		v.each(func(key []byte, v value) bool {
			switch string(key) {
			case "severity_text":
				f.severity.offer(10, v)
			case "severity_number":
				f.severity.offer(rankOTLPNumber, v)
			}
			return true
		})
		return false
	})
}

// fromGroup reads the resource that a group of OpenTelemetry records came from:
// {"resource": {"attributes": {…}}, "scope": {…}}.
func fromGroup(f *found, group value) {
	group.each(func(key []byte, v value) bool {
		if string(key) != "resource" {
			return true
		}
		v.each(func(key []byte, v value) bool {
			if string(key) != "attributes" {
				return true
			}
			v.each(func(key []byte, v value) bool {
				switch string(key) {
				case "k8s.namespace.name":
					f.namespace.offer(6, v)
				case "k8s.pod.name":
					f.pod.offer(6, v)
				case "k8s.container.name":
					f.container.offer(6, v)
				case "k8s.node.name":
					f.node.offer(6, v)
				case "host.name":
					f.node.offer(7, v)
				case "service.name":
					f.unit.offer(6, v)
				}
				return true
			})
			return false
		})
		return false
	})
}

// fromTag finds a pod in the tag of Fluent Bit's tail input, which holds the path:
// kube.var.log.containers.POD_NAMESPACE_CONTAINER-ID.log
func fromTag(f *found, tag []byte) {
	const mark = "var.log.containers."
	i := bytes.Index(tag, []byte(mark))
	if i < 0 || f.pod.rank > 0 && f.namespace.rank > 0 {
		return
	}
	parts := bytes.SplitN(bytes.TrimSuffix(tag[i+len(mark):], []byte(".log")), []byte("_"), 3)
	if len(parts) != 3 {
		return
	}
	f.pod.offerText(8, parts[0])
	f.namespace.offerText(8, parts[1])
	if dash := bytes.LastIndexByte(parts[2], '-'); dash > 0 {
		f.container.offerText(8, parts[2][:dash])
	}
}

// message finds the text of the line. A record without one is shown as JSON.
func (r *reader) message(l *line, f *found, rec value) {
	var text []byte
	switch {
	case f.message.rank > 0:
		text = bytes.TrimRight(f.message.get(r.maxLine), "\r\n")
	case f.others:
		r.text = appendOthers(r.text, rec, r.maxLine)
		text = r.text
	}
	long := len(text) > r.maxLine
	if long { // at a character's beginning, before it is looked at: it may be very long
		end := r.maxLine
		for end > r.maxLine-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end:end]
	}
	if !utf8.Valid(text) {
		r.repaired++
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if long || len(text) > r.maxLine {
		r.truncated++
		text = append(clip(text, r.maxLine), "… [truncated]"...)
	}
	l.message = text
}

// clip cuts valid UTF-8 to at most n bytes, without room behind them.
func clip(b []byte, n int) []byte {
	if len(b) <= n {
		return b[:len(b):len(b)]
	}
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return b[:n:n]
}

// appendOthers stops behind the field with which b is longer than a message may be.
func appendOthers(b []byte, rec value, limit int) []byte {
	b = append(b, '{')
	first := true
	rec.each(func(key []byte, v value) bool {
		if consumed(key) {
			return true
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(appendQuoted(b, upTo(key, limit)), ':')
		b = v.appendJSON(b, limit)
		return len(b) <= limit
	})
	return append(b, '}')
}

// labelDepth is how deep objects are taken apart into labels a.b.c; what is
// deeper becomes JSON.
const labelDepth = 4

// labels keeps what a record says beside the line: its other fields, and the labels
// of its pod.
func (r *reader) labels(l *line, f *found, rec value) {
	// The other fields were parsed from this line: what it says is in it.
	whole := len(l.message) > 0 && l.message[0] == '{'
	rec.each(func(key []byte, v value) bool {
		rank, full, left := messageRank(key), len(l.labels) >= store.MaxLabels, r.unlabelled
		switch {
		case string(key) == "kubernetes":
			v.each(func(sub []byte, v value) bool {
				if string(sub) == "labels" {
					r.label(l, []byte("kubernetes.labels"), v, 0)
				}
				return len(l.labels) < store.MaxLabels
			})
		case rank > 0 && rank != f.message.rank && !whole:
			r.label(l, key, v, 0)
		case !consumed(key):
			r.label(l, key, v, 0)
		}
		return !full || r.unlabelled == left // the first one that has no room is the last one looked at
	})
}

// trace keeps the ids of an OpenTelemetry record, in hex as they are written everywhere
// else. They come before all other labels, which may be too many.
func (r *reader) trace(l *line, meta value) {
	otlpOf(meta, func(key []byte, v value) {
		name := string(key)
		if name != "trace_id" && name != "span_id" || v.typ() != typeText {
			return
		}
		id := v.textUpTo(64)
		if len(id) == 16 && name == "trace_id" || len(id) == 8 { // bytes, as Fluent Bit has them
			start := len(r.text)
			r.text = hex.AppendEncode(r.text, id)
			id = r.text[start:len(r.text):len(r.text)]
		}
		if len(bytes.Trim(id, "0")) > 0 && len(id) <= 32 && utf8.Valid(id) {
			l.labels = append(l.labels, label{key, id})
		}
	})
}

func otlpOf(meta value, f func(key []byte, v value)) {
	meta.each(func(key []byte, v value) bool {
		if string(key) != "otlp" {
			return true
		}
		v.each(func(key []byte, v value) bool { f(key, v); return true })
		return false
	})
}

// metadata keeps what came beside the record: attributes of an OpenTelemetry record as
// attributes.NAME, those of its resource as resource.NAME, its scope as scope.NAME, and
// what else Fluent Bit's inputs and processors say as metadata.NAME.
func (r *reader) metadata(l *line, meta, group value) {
	if meta.typ() == typeObject {
		otlpOf(meta, func(key []byte, v value) {
			if string(key) == "attributes" {
				r.label(l, key, v, 0)
			}
		})
		r.below(l, "metadata.", meta, func(key []byte) bool { return string(key) != "otlp" })
	}
	if group.typ() != typeObject {
		return
	}
	group.each(func(key []byte, v value) bool {
		switch string(key) {
		case "resource":
			v.each(func(sub []byte, v value) bool {
				if string(sub) == "attributes" {
					r.below(l, "resource.", v, func(key []byte) bool { return !placed(key) })
				}
				return true
			})
		case "scope":
			r.label(l, key, v, 0)
		}
		return true
	})
}

// placed are attributes of a resource that have a field of their own; see fromGroup.
func placed(key []byte) bool {
	switch string(key) {
	case "k8s.namespace.name", "k8s.pod.name", "k8s.container.name", "k8s.node.name":
		return true
	}
	return false
}

// below makes labels of an object's fields, with a prefix before their names.
func (r *reader) below(l *line, prefix string, v value, want func(key []byte) bool) {
	v.each(func(key []byte, v value) bool {
		if !want(key) {
			return true
		}
		start, labels := len(r.text), len(l.labels)
		if len(prefix)+len(key) > store.MaxFieldBytes || labels >= store.MaxLabels {
			r.unlabelled++
			return labels < store.MaxLabels
		}
		r.text = append(append(r.text, prefix...), key...)
		r.label(l, r.text[start:len(r.text):len(r.text)], v, 0)
		if len(l.labels) == labels {
			r.text = r.text[:start]
		}
		return true
	})
}

func (r *reader) label(l *line, key []byte, v value, depth int) {
	t := v.typ()
	if t == typeNull || len(key) == 0 {
		return
	}
	if t == typeObject && depth < labelDepth {
		v.each(func(sub []byte, v value) bool {
			if len(l.labels) >= store.MaxLabels || len(key)+len(sub) >= store.MaxFieldBytes {
				r.unlabelled++
				return len(l.labels) < store.MaxLabels
			}
			start, labels := len(r.text), len(l.labels)
			r.text = append(append(append(r.text, key...), '.'), sub...)
			r.label(l, r.text[start:len(r.text):len(r.text)], v, depth+1)
			if len(l.labels) == labels {
				r.text = r.text[:start] // a null, an empty object: nothing holds the name
			}
			return true
		})
		return
	}
	if len(l.labels) >= store.MaxLabels || len(key) > store.MaxFieldBytes {
		r.unlabelled++
		return
	}
	val := v.textUpTo(store.MaxFieldBytes)
	if !utf8.Valid(val) {
		r.repaired++
		val = bytes.ToValidUTF8(val, []byte("\uFFFD"))
	}
	if !utf8.Valid(key) {
		r.repaired++
		key = clip(bytes.ToValidUTF8(key, []byte("\uFFFD")), store.MaxFieldBytes)
	}
	if len(val) > store.MaxFieldBytes {
		val = append(clip(val, store.MaxFieldBytes-3), "…"...)
	}
	l.labels = append(l.labels, label{key, val})
}

// name bounds and repairs what names something.
func (r *reader) name(p *pick) []byte {
	b := bytes.TrimSpace(p.get(maxName))
	if !utf8.Valid(b) {
		r.repaired++
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	return clip(b, maxName)
}

// The severities that records carry. They are syslog's, without emergency and
// alert (they are critical), and with trace.
const (
	SeverityTrace    = "trace"
	SeverityDebug    = "debug"
	SeverityInfo     = "info"
	SeverityNotice   = "notice"
	SeverityWarning  = "warning"
	SeverityError    = "error"
	SeverityCritical = "critical"
)

var severities = map[string][]byte{
	"trace": []byte(SeverityTrace), "trc": []byte(SeverityTrace), "finest": []byte(SeverityTrace), "verbose": []byte(SeverityTrace),
	"debug": []byte(SeverityDebug), "dbg": []byte(SeverityDebug), "fine": []byte(SeverityDebug), "d": []byte(SeverityDebug),
	"info": []byte(SeverityInfo), "information": []byte(SeverityInfo), "informational": []byte(SeverityInfo), "inf": []byte(SeverityInfo), "i": []byte(SeverityInfo),
	"notice":  []byte(SeverityNotice),
	"warning": []byte(SeverityWarning), "warn": []byte(SeverityWarning), "wrn": []byte(SeverityWarning), "w": []byte(SeverityWarning),
	"error": []byte(SeverityError), "err": []byte(SeverityError), "eror": []byte(SeverityError), "severe": []byte(SeverityError), "e": []byte(SeverityError),
	"critical": []byte(SeverityCritical), "crit": []byte(SeverityCritical), "fatal": []byte(SeverityCritical), "ftl": []byte(SeverityCritical), "panic": []byte(SeverityCritical),
	"dpanic": []byte(SeverityCritical), "alert": []byte(SeverityCritical), "emerg": []byte(SeverityCritical), "emergency": []byte(SeverityCritical), "f": []byte(SeverityCritical),
}

// bySyslog are syslog's priorities, RFC 5424 section 6.2.1.
var bySyslog = [8]string{"critical", "critical", "critical", "error", "warning", "notice", "info", "debug"}

func severityOf(v value, text []byte, rank int) []byte {
	if n, ok := v.number(); ok && text == nil {
		return severities[severityNumber(n, rank)]
	}
	if text == nil {
		text = v.text()
	}
	return severityText(text)
}

func severityText(text []byte) []byte {
	var low [16]byte
	if text = bytes.TrimSpace(text); len(text) == 0 || len(text) > len(low) {
		return nil
	}
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		low[i] = c
	}
	return severities[string(low[:len(text)])]
}

// severityNumber knows syslog (0…7), OpenTelemetry (1…24, where the field says so)
// and bunyan and pino (10…60).
func severityNumber(n float64, rank int) string {
	i := int(n)
	if n < 0 || n > 100 {
		return ""
	}
	if rank == rankOTLPNumber {
		switch {
		case i <= 0:
			return ""
		case i <= 4:
			return SeverityTrace
		case i <= 8:
			return SeverityDebug
		case i <= 12:
			return SeverityInfo
		case i <= 16:
			return SeverityWarning
		case i <= 20:
			return SeverityError
		}
		return SeverityCritical
	}
	switch {
	case i < 8:
		return bySyslog[i]
	case i < 10:
		return ""
	case i < 20:
		return SeverityTrace
	case i < 30:
		return SeverityDebug
	case i < 40:
		return SeverityInfo
	case i < 50:
		return SeverityWarning
	case i < 60:
		return SeverityError
	}
	return SeverityCritical
}

// guessSeverity looks into a line that nobody has parsed: a klog header ("E0102
// 15:04:05…"), level=… of logfmt, or "level":"…" of a JSON logger, in its
// first bytes. It returns nil when the line does not say.
func guessSeverity(m []byte) []byte {
	if len(m) > 5 && m[5] == ' ' && strings.IndexByte("IWEF", m[0]) >= 0 && digits(m[1:5]) {
		return severityText(m[:1])
	}
	head := m[:min(len(m), 256)]
	for _, mark := range guessMarks {
		i := bytes.Index(head, mark)
		if i < 0 || i > 0 && mark[0] != '"' && head[i-1] != ' ' {
			continue
		}
		word := bytes.TrimLeft(head[i+len(mark):], ` "`)
		end := 0
		for end < len(word) && (word[end]|0x20) >= 'a' && (word[end]|0x20) <= 'z' {
			end++
		}
		if s := severityText(word[:end]); s != nil {
			return s
		}
	}
	return nil
}

var guessMarks = [][]byte{[]byte(`level=`), []byte(`"level":`), []byte(`"severity":`), []byte(`lvl=`), []byte(`severity=`)}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
