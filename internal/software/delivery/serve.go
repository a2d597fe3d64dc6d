package delivery

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Serve serves the directory in which a repository of package publish lies: what the
// centre does where bundles are kept on its disk.
func Serve(dir string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		name, changes := path, false
		switch {
		case match(path, MetadataPath, metadataForm.MatchString):
			name = path[len(MetadataPath):]
			changes = name == "timestamp.json"
		case match(path, BlobPath, digestForm.MatchString), match(path, DeltaPath, isDelta):
		default:
			http.NotFound(w, r)
			return
		}
		f, err := os.Open(filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(name, "/"))))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		if !changes {
			w.Header().Set("Etag", `"`+filepath.Base(name)+`"`)
		}
		http.ServeContent(w, r, "", time.Time{}, f)
	})
}

// FileOf is the digest of the file that a path gives, of a delta that of what it makes; ok is
// false for metadata and what is no path of a file.
func FileOf(path string) (digest string, ok bool) {
	if match(path, BlobPath, digestForm.MatchString) || match(path, DeltaPath, isDelta) {
		return filepath.Base(path), true
	}
	return "", false
}

func isDelta(s string) bool {
	return len(s) == 129 && s[64] == '/' && digestForm.MatchString(s[:64]) && digestForm.MatchString(s[65:])
}
