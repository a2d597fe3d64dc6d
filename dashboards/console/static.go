package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

const (
	indexFile = "index.html"
	// assetsDir holds the files whose names carry a hash of what is in them.
	assetsDir   = "assets/"
	minCompress = 1024
)

// asset is a file of the UI, held in memory once plain and once compressed: the
// whole UI is a few megabytes, and embedded files have no time to be cached by.
type asset struct {
	plain, gzipped []byte // gzipped is nil where it saves nothing
	contentType    string
	etag           string
	cache          string
}

type static struct{ assets map[string]asset }

// newStatic reads the UI; nil gives the page that says how to build it.
func newStatic(ui fs.FS) (http.Handler, error) {
	if ui == nil {
		return http.HandlerFunc(notBuilt), nil
	}
	s := &static{assets: map[string]asset{}}
	err := fs.WalkDir(ui, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(ui, name)
		if err != nil {
			return err
		}
		s.assets[name], err = newAsset(name, data)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, ok := s.assets[indexFile]; !ok {
		return nil, fmt.Errorf("there is no %s in it; run `make build`", indexFile)
	}
	return s, nil
}

func newAsset(name string, data []byte) (asset, error) {
	sum := sha256.Sum256(data)
	a := asset{plain: data, contentType: contentType(name, data), cache: "no-cache",
		etag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	if strings.HasPrefix(name, assetsDir) {
		a.cache = "public, max-age=31536000, immutable"
	}
	if len(data) < minCompress {
		return a, nil
	}
	var buf bytes.Buffer
	zw, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return a, err
	}
	if _, err := zw.Write(data); err != nil {
		return a, err
	}
	if err := zw.Close(); err != nil {
		return a, err
	}
	if buf.Len() < len(data)*9/10 {
		a.gzipped = buf.Bytes()
	}
	return a, nil
}

// contentType doesn't depend on the machine's mime tables for what a UI consists of.
func contentType(name string, data []byte) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".json", ".map", ".geojson":
		return "application/json"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".webmanifest":
		return "application/manifest+json"
	}
	if ct := mime.TypeByExtension(path.Ext(name)); ct != "" {
		return ct
	}
	return http.DetectContentType(data)
}

// ServeHTTP serves a file, and index.html for the paths that the UI itself routes.
func (s *static) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	a, ok := s.assets[name]
	if !ok {
		if strings.HasPrefix(name, assetsDir) || path.Ext(name) != "" && !strings.Contains(r.Header.Get("Accept"), "text/html") {
			notFound("there is no %s", printable(r.URL.Path)).write(w)
			return
		}
		a = s.assets[indexFile]
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", a.cache)
	h.Set("Vary", "Accept-Encoding")
	body, etag := a.plain, a.etag
	if a.gzipped != nil && r.Header.Get("Range") == "" && acceptsGzip(r) {
		body, etag = a.gzipped, a.etag+"-gz"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		coding, q, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q = strings.ReplaceAll(q, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

const notBuiltPage = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Muster</title>
<h1>Muster</h1>
<p>This binary was built without the web console. Run <code>make build</code>, which builds it and puts it into
<code>bin/muster</code>.</p>
<p>The HTTP API works: <a href="/api/v1/openapi.json">/api/v1/openapi.json</a> describes it.</p>
</html>
`

func notBuilt(w http.ResponseWriter, r *http.Request) {
	if path.Ext(r.URL.Path) != "" {
		notFound("there is no %s: this binary was built without the web console", printable(r.URL.Path)).write(w)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(notBuiltPage))
}
