package console

import (
	"net/http"

	"github.com/klauspost/compress/gzip"
)

// gzipStream compresses an event stream as one: what one event says of a site costs a few
// bytes after another has said most of it, so that events can stay whole for whoever reads
// them. It takes about half a megabyte while the stream is open.
type gzipStream struct {
	http.ResponseWriter
	zw *gzip.Writer // nil: it goes as it is
}

// WriteHeader implements http.ResponseWriter. A refusal goes as it is.
func (w *gzipStream) WriteHeader(code int) {
	h := w.Header()
	if code == http.StatusOK && h.Get("Content-Encoding") == "" {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		h.Del("Content-Length")
		w.zw, _ = gzip.NewWriterLevel(w.ResponseWriter, gzip.BestSpeed) // the level is a good one
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *gzipStream) Write(b []byte) (int, error) {
	if w.zw == nil {
		return w.ResponseWriter.Write(b)
	}
	return w.zw.Write(b)
}

// FlushError is what http.ResponseController calls.
func (w *gzipStream) FlushError() error {
	if w.zw != nil {
		if err := w.zw.Flush(); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// end ends the stream in good order.
func (w *gzipStream) end() {
	if w.zw != nil {
		_ = w.zw.Close() // the client is gone
	}
}
