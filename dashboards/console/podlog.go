package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	defaultPodLines = 1000     // from the end of a log
	maxLineBytes    = 32 << 10 // of one line; the rest is cut off
	maxLineBatch    = 500      // lines an event
	podLogAlive     = 15 * time.Second
)

// podLine is a line of a pod's log. Time is as the node wrote it; "" where it wrote none.
type podLine struct {
	Time string `json:"time"`
	Text string `json:"text"`
}

// splitLine takes the time off a line that was asked for with timestamps.
func splitLine(s string) podLine {
	s = strings.TrimRight(s, "\r\n")
	at, rest, _ := strings.Cut(s, " ")
	if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
		return podLine{Text: strings.ToValidUTF8(s, "�")}
	}
	return podLine{Time: at, Text: strings.ToValidUTF8(rest, "�")}
}

// followPodLog sends the end of a container's log and then what it writes, as
// server-sent events, for as long as the user may read it. Its site's connection carries
// it; when the container has ended, so does the stream.
func (c *Console) followPodLog(w http.ResponseWriter, cl *call) error {
	ref, err := c.virtualOf(cl)
	if err != nil {
		return err
	}
	still := func(ctx context.Context, id identity) bool {
		ok, err := c.access.may(ctx, id, readPodLogs, ref.kubeNamespace())
		return err == nil && ok
	}
	var problem error
	err = c.streaming(w, cl, []string{ref.tenant}, still, 0, func(w http.ResponseWriter, ctx context.Context, _ *atomic.Bool) {
		problem = c.sendPodLog(w, ctx, cl, ref)
	})
	return errors.Join(err, problem)
}

// sendPodLog returns what went wrong before anything was sent.
func (c *Console) sendPodLog(w http.ResponseWriter, ctx context.Context, cl *call, ref virtualRef) error {
	req := c.kube.user.Get().AbsPath(ref.podPath(cl, "log")...).Param("timestamps", "true")
	if name := cl.q.Get("container"); name != "" {
		req = req.Param("container", name)
	}
	if cl.q.Get("previous") != "" {
		req = req.Param("previous", "true")
	} else {
		req = req.Param("follow", "true")
	}
	after, err := time.Parse(time.RFC3339Nano, cl.Header.Get("Last-Event-ID"))
	if resumes := err == nil; resumes {
		// It counts in whole seconds: what was sent of this one is left out below.
		req = req.Param("sinceTime", after.UTC().Truncate(time.Second).Format(time.RFC3339))
	} else {
		lines := cl.q.Get("lines")
		if lines == "" {
			lines = strconv.Itoa(defaultPodLines)
		}
		req = req.Param("tailLines", lines)
	}
	log, err := req.Stream(ctx)
	if err != nil {
		return err
	}
	defer log.Close()

	w.Header().Set("Content-Type", "text/event-stream")
	out := &podEvents{w: w, ctl: http.NewResponseController(w)}
	if out.comment("retry: 2000") != nil {
		return nil
	}
	lines := make(chan podLine, maxLineBatch)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(lines)
		readLines(ctx, log, after, lines)
	}()
	alive := time.NewTicker(podLogAlive)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-alive.C:
			if out.comment(": alive") != nil {
				return nil
			}
		case l, more := <-lines:
			if !more {
				_ = out.event("end", "", struct{}{})
				return nil
			}
			if out.lines(l, lines) != nil {
				return nil
			}
		}
	}
}

// readLines sends the lines of a log that came after a time, until it ends.
func readLines(ctx context.Context, body io.Reader, after time.Time, to chan<- podLine) {
	in := bufio.NewReaderSize(body, maxLineBytes)
	for {
		b, err := in.ReadSlice('\n')
		line := splitLine(string(b))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			_, err = in.ReadSlice('\n')
		}
		if len(b) > 0 && (after.IsZero() || laterThan(line.Time, after)) {
			select {
			case <-ctx.Done():
				return
			case to <- line:
			}
		}
		if err != nil {
			return
		}
	}
}

func laterThan(s string, t time.Time) bool {
	at, err := time.Parse(time.RFC3339Nano, s)
	return err != nil || at.After(t)
}

// podEvents writes the events of a pod's log.
type podEvents struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

func (e *podEvents) comment(s string) error {
	if _, err := io.WriteString(e.w, s+"\n\n"); err != nil {
		return err
	}
	return e.ctl.Flush()
}

// lines sends one line and those that have come in since. The event's id is the newest
// time, after which a reader goes on.
func (e *podEvents) lines(first podLine, more <-chan podLine) error {
	batch, id := []podLine{first}, first.Time
	for len(batch) < maxLineBatch && len(more) > 0 {
		l, ok := <-more
		if !ok {
			break
		}
		batch = append(batch, l)
		if l.Time != "" {
			id = l.Time
		}
	}
	return e.event("lines", id, map[string]any{"lines": batch})
}

func (e *podEvents) event(name, id string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	if _, err := fmt.Fprintf(e.w, "event: %s\n%sdata: %s\n\n", name, id, b); err != nil {
		return err
	}
	return e.ctl.Flush()
}
