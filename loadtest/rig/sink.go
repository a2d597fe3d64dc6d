package rig

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sink stands where an external Cortex would: it takes whatever is pushed, keeps nothing and
// knows nothing. With it the regional of a fleet can be measured whose history has no room on
// this machine.
type sink struct {
	url string
	srv *http.Server
}

func startSink() (*sink, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen in place of Cortex: %w", err)
	}
	s := &sink{url: "http://" + ln.Addr().String(), srv: &http.Server{Handler: http.HandlerFunc(swallow), ReadHeaderTimeout: time.Minute}}
	go func() { _ = s.srv.Serve(ln) }()
	return s, nil
}

func (s *sink) close() { _ = s.srv.Close() }

func swallow(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if strings.HasSuffix(r.URL.Path, "/push") {
		// The sender of remote write 2.0 wants to hear that no fewer were written than it sent.
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", strconv.Itoa(math.MaxInt32))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[]}}`)
}
