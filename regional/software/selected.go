package software

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/delivery"
	"muster.dev/muster/internal/wire"
)

// Desired is what control wants sites to hold; *relay.Relay is one.
type Desired interface {
	// Items of one kind; ok is false while nothing is known of the site.
	Items(site fleet.SiteID, kind string) (items []*wire.Item, ok bool)
	// Blob streams the content of one of the site's items.
	Blob(ctx context.Context, site fleet.SiteID, digest string, offset int64, send func([]byte) error) error
}

// maxRead is of how many items it is kept which files they name: sites that shall run the
// same share an item.
const maxRead = 4096

// selection answers which files a site may have: those of the versions that its tenant's
// policies, or the site itself, select for it. Whoever has a site's certificate could else
// read all that was ever released for anybody.
type selection struct {
	desired Desired

	mu   sync.Mutex
	read map[string]map[string]bool // digests of files, by the item's
}

// notSelected is of a file that is there for others, or for nobody.
type notSelected struct {
	site fleet.SiteID
	file string
}

// Error says what to do.
func (e *notSelected) Error() string {
	return fmt.Sprintf("no SoftwarePolicy selects the file %.12s… for site %s; name its version in one, or in the site's spec.software", e.file, e.site)
}

// errUnknown is of a site that has come just now, before control has said what it shall run.
var errUnknown = errors.New("it is not known yet what the site shall run; come again")

// check returns nil if the site may have what is at the path, below Prefix. Signed metadata
// is for every site: without it none can tell what is good.
func (s *selection) check(ctx context.Context, site fleet.SiteID, at string) error {
	file, ok := delivery.FileOf(at)
	if !ok {
		return nil
	}
	items, ok := s.desired.Items(site, software.Kind)
	if !ok {
		return errUnknown
	}
	var failed error
	for _, it := range items {
		files, err := s.files(ctx, site, it)
		if err != nil {
			failed = err
		} else if files[file] {
			return nil
		}
	}
	if failed != nil {
		return failed
	}
	return &notSelected{site, file}
}

// files are the digests that an item names, for each architecture.
func (s *selection) files(ctx context.Context, site fleet.SiteID, it *wire.Item) (map[string]bool, error) {
	s.mu.Lock()
	files, ok := s.read[it.Digest]
	s.mu.Unlock()
	if ok {
		return files, nil
	}
	if it.Size > software.MaxBytes {
		return nil, fmt.Errorf("item %s of site %s has %d bytes, the limit is %d", it.Name, site, it.Size, software.MaxBytes)
	}
	var blob []byte
	if err := s.desired.Blob(ctx, site, it.Digest, 0, func(b []byte) error {
		blob = append(blob, b...)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("what site %s shall run of its %s: %w", site, it.Name, err)
	}
	wanted, err := software.Decode(blob)
	if err != nil {
		return nil, err
	}
	files = map[string]bool{}
	for _, f := range wanted.Files {
		files[f.Digest] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.read) >= maxRead {
		clear(s.read)
	}
	s.read[it.Digest] = files
	return files, nil
}

// selected answers for a file that the site may not have, or not yet.
func (s *Server) selected(w http.ResponseWriter, r *http.Request, id fleet.SiteID) bool {
	err := s.selects.check(r.Context(), id, strings.TrimPrefix(r.URL.Path, Prefix))
	var not *notSelected
	switch {
	case err == nil:
		return true
	case errors.As(err, &not):
		s.m.unselected.Inc()
		http.Error(w, err.Error(), http.StatusForbidden)
	default:
		if !errors.Is(err, errUnknown) && r.Context().Err() == nil {
			s.o.Logger.Debug("it can't be told now what a site may fetch", "site", id, "err", err)
		}
		w.Header().Set("Retry-After", "10")
		http.Error(w, "it can't be told now which software the site shall run; come again", http.StatusServiceUnavailable)
	}
	return false
}
