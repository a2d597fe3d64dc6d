package simcluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// logEvery is how often a container says something.
	logEvery = 2 * time.Second
	// logLines is how many lines of a container are kept.
	logLines = 1000
)

// logOptions reads what kubectl logs asks for.
func logOptions(q url.Values) (o corev1.PodLogOptions, err error) {
	number := func(name string) *int64 {
		if q.Get(name) == "" {
			return nil
		}
		n, bad := strconv.ParseInt(q.Get(name), 10, 64)
		if bad != nil || n < 0 {
			err = fmt.Errorf("%s: %q is no count", name, q.Get(name))
		}
		return &n
	}
	o = corev1.PodLogOptions{Container: q.Get("container"), Follow: q.Get("follow") == "true", Previous: q.Get("previous") == "true", Timestamps: q.Get("timestamps") == "true",
		TailLines: number("tailLines"), SinceSeconds: number("sinceSeconds"), LimitBytes: number("limitBytes")}
	if s := q.Get("sinceTime"); s != "" {
		at, bad := time.Parse(time.RFC3339, s)
		if err = cmp.Or(err, bad); err == nil {
			o.SinceTime = &metav1.Time{Time: at}
		}
	}
	return o, err
}

// logged is the log of a container: line n is said at from + n·logEvery, the last one
// before until, unless it is the zero time.
type logged struct {
	pod         string
	from, until time.Time
	died        bool // of itself
}

// log is the log that is asked for, or why there is none.
func (c *Cluster) log(namespace, name string, o corev1.PodLogOptions) (logged, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, i, err := c.findLocked(namespace, name)
	if err != nil {
		return logged{}, err
	}
	all := w.Spec.Template.Spec.Containers
	var names []string
	for _, ct := range all {
		names = append(names, ct.Name)
	}
	at := 0
	switch {
	case o.Container != "":
		at = slices.Index(names, o.Container)
	case len(all) > 1:
		return logged{}, fmt.Errorf("pod %s has more than one container, say which: %s", name, strings.Join(names, ", "))
	}
	if at < 0 || at >= len(all) {
		return logged{}, fmt.Errorf("pod %s has no container %s", name, o.Container)
	}
	p, why := w.pods[i], broken(all[at].Image)
	l := logged{pod: name, from: p.made}
	crashes := why != nil && why.Reason == crashLoop
	switch {
	case why != nil && !crashes:
		return logged{}, fmt.Errorf("container %s in pod %s waits to start: its image can't be pulled", names[at], name)
	case o.Previous && !(crashes && w.kind != "Job"):
		return logged{}, fmt.Errorf("container %s in pod %s has not ended before", names[at], name)
	case crashes, w.kind == "Job":
		l.until, l.died = l.from.Add(logEvery), crashes
	}
	return l, nil
}

// line is what is said at the n-th time.
func (l logged) line(n int64) (at time.Time, text string) {
	at = l.from.Add(time.Duration(n) * logEvery).UTC()
	switch {
	case l.died:
		text = "fatal: it does not start"
	case !l.until.IsZero():
		text = "done"
	default:
		text = fmt.Sprintf("%s GET /healthz 200 %dms", l.pod, 1+(at.Unix()/2)%7)
	}
	return at, at.Format(time.RFC3339) + " " + text
}

// said is how many lines there are at a time.
func (l logged) said(now time.Time) int64 {
	if !l.until.IsZero() && l.until.Before(now) {
		now = l.until.Add(-1)
	}
	if now.Before(l.from) {
		return 0
	}
	return int64(now.Sub(l.from)/logEvery) + 1
}

// serveLog answers kubectl logs.
func (c *Cluster) serveLog(w http.ResponseWriter, req *http.Request) {
	o, err := logOptions(req.URL.Query())
	var l logged
	if err == nil {
		l, err = c.log(req.PathValue("namespace"), req.PathValue("name"), o)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_ = l.write(req.Context(), w, o, func() { _ = http.NewResponseController(w).Flush() })
}

// write writes the lines that are asked for, and those that come until ctx ends if they are
// followed.
func (l logged) write(ctx context.Context, w io.Writer, o corev1.PodLogOptions, flush func()) error {
	room := int64(1 << 62)
	if o.LimitBytes != nil {
		room = *o.LimitBytes
	}
	say := func(n int64) error {
		at, text := l.line(n)
		if o.Timestamps {
			text = at.Format(time.RFC3339Nano) + " " + text
		}
		text = (text + "\n")[:min(int64(len(text))+1, room)]
		room -= int64(len(text))
		_, err := io.WriteString(w, text)
		return err
	}
	now := time.Now()
	end := l.said(now)
	first := max(0, end-logLines)
	if o.SinceSeconds != nil {
		o.SinceTime = &metav1.Time{Time: now.Add(-time.Duration(*o.SinceSeconds) * time.Second)}
	}
	for o.SinceTime != nil && first < end {
		if at, _ := l.line(first); !at.Before(o.SinceTime.Time) {
			break
		}
		first++
	}
	if o.TailLines != nil {
		first = max(first, end-*o.TailLines)
	}
	for n := first; ; n++ {
		if n >= end {
			if flush(); !o.Follow || !l.until.IsZero() {
				return nil
			}
			at, _ := l.line(n)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(at)):
			}
		}
		if err := say(n); err != nil || room == 0 {
			return err
		}
	}
}
