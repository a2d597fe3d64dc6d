package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"muster.dev/muster/control/api/region"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/wire"
)

// Item is one item of what the regional itself holds: a tenant's sites or rules, see
// control/api/region.
type Item struct {
	Kind, Name string // Name: the tenant
	Digest     string // of Blob; equal digests, equal blobs
	Blob       []byte // must not be changed
}

// ItemError says that an item is not in effect. Of an item of kind Rules that is in
// effect but for some objects, the errors name those: Kind is AlertRules or LogRules,
// and Name TENANT/NAME.
type ItemError struct {
	Kind, Name string
	Err        error
}

// Pauses between attempts to fetch what is missing.
const (
	minFetchPause = time.Second
	maxFetchPause = 30 * time.Second
)

// held keeps what the regional itself holds: the set that control last named, and on
// disk the last good one, of items that were fetched whole and not refused.
type held struct {
	dir    string
	apply  func([]Item) []ItemError
	fetch  func(ctx context.Context, digest string, size int64) ([]byte, error)
	notify func() // something is to be sent to control
	log    *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	wanted *wire.DesiredState // nil: none heard of since the start
	report *wire.RegionalReport
	due    bool
	// Of which report is made: the set, what was refused of it, and what failed since.
	reported       *wire.DesiredState
	refused, later []ItemError
	status         HeldStatus

	// Of the goroutine that applies alone.
	blobs   map[string][]byte     // of applied and good, by digest
	applied *wire.DesiredState    // as handed on last; nil: nothing yet
	good    map[string]*wire.Item // by KIND/NAME
}

// HeldStatus is what /debug/ shows of what the regional itself holds.
type HeldStatus struct {
	Items    int      `json:"items"`   // handed on
	Refused  int      `json:"refused"` // of them
	Pending  bool     `json:"pending"` // control wants another set
	Revision string   `json:"revision,omitempty"`
	Errors   []string `json:"errors,omitempty"` // the first few
}

const maxStatusErrors = 10

func newHeld(dir string, apply func([]Item) []ItemError, fetch func(context.Context, string, int64) ([]byte, error), notify func(), log *slog.Logger) *held {
	return &held{dir: dir, apply: apply, fetch: fetch, notify: notify, log: log, wake: make(chan struct{}, 1), blobs: map[string][]byte{}, good: map[string]*wire.Item{}}
}

// regionalLimits are of a set that control wants a regional to hold.
var regionalLimits = holdings.Limits{Bytes: region.MaxBytes}

// want takes a set of control.
func (h *held) want(st *wire.DesiredState) {
	if err := holdings.Check(st, regionalLimits); err != nil {
		h.log.Warn("control sent a set of items for this regional that makes no sense; ignored", "err", err)
		return
	}
	h.mu.Lock()
	h.wanted, h.status.Pending = st, true
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run hands on what is stored, then each set that control names, until ctx ends.
func (h *held) run(ctx context.Context) {
	if stored := h.load(); stored != nil {
		h.setReport(stored, h.applyItems(stored))
	}
	pause := time.Duration(0)
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		if again.Stop(); pause > 0 {
			again.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-again.C:
		}
		h.mu.Lock()
		wanted := h.wanted
		h.mu.Unlock()
		err := h.reconcile(ctx, wanted)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			pause = min(max(minFetchPause, 2*pause), maxFetchPause)
			h.log.Warn("can't get all that control wants this regional to hold; what it has stays in effect", "again", pause, "err", err)
			continue
		}
		pause = 0
	}
}

// reconcile makes a wanted set the applied one, and reports.
func (h *held) reconcile(ctx context.Context, wanted *wire.DesiredState) error {
	if wanted == nil {
		return nil
	}
	h.mu.Lock()
	known := h.report.GetRevision() == wanted.Revision
	h.mu.Unlock()
	if !known {
		if err := h.fetchAll(ctx, wanted); err != nil {
			return err
		}
		errs := h.applyItems(wanted)
		h.setReport(wanted, errs)
		h.keepGood(wanted, errs)
	}
	h.mu.Lock()
	h.due = true
	h.status.Pending = h.wanted != wanted
	h.mu.Unlock()
	h.notify()
	return nil
}

// fetchAll gets the blobs that are not there. They stay in memory only: keepGood
// stores them.
func (h *held) fetchAll(ctx context.Context, wanted *wire.DesiredState) error {
	for _, it := range wanted.Items {
		if _, ok := h.blobs[it.Digest]; ok {
			continue
		}
		b, err := h.fetch(ctx, it.Digest, it.Size)
		if err != nil {
			return fmt.Errorf("%s: %w", holdings.Key(it), err)
		}
		h.blobs[it.Digest] = b
	}
	return nil
}

// applyItems calls the consumer; every blob is there and checked.
func (h *held) applyItems(st *wire.DesiredState) []ItemError {
	items := make([]Item, len(st.Items))
	for i, it := range st.Items {
		items[i] = Item{Kind: it.Kind, Name: it.Name, Digest: it.Digest, Blob: h.blobs[it.Digest]}
	}
	errs := h.apply(items)
	h.applied = st
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status.Items, h.status.Refused, h.status.Revision, h.status.Errors = len(items), len(errs), st.Revision, nil
	for _, e := range errs[:min(len(errs), maxStatusErrors)] {
		h.status.Errors = append(h.status.Errors, fmt.Sprintf("%s %s: %v", e.Kind, e.Name, e.Err))
	}
	return errs
}

// reasons are why items and objects are refused, by KIND/NAME.
func reasons(errs []ItemError) map[string]string {
	why := map[string]string{}
	for _, e := range errs {
		if e.Err != nil {
			why[e.Kind+"/"+e.Name] = cmp.Or(clipError(e.Err.Error()), "refused")
		}
	}
	return why
}

// setReport makes what control is told about a set: each item, then the objects
// within items that are refused.
func (h *held) setReport(st *wire.DesiredState, errs []ItemError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported, h.refused = st, errs
	h.makeReportLocked()
}

// fail replaces what fails at work of what is in effect, and reports it if that is news.
func (h *held) fail(errs []ItemError) {
	h.mu.Lock()
	before := h.report
	h.later = errs
	if h.reported != nil {
		h.makeReportLocked()
	}
	// On a stream on which control has not named its set yet the answer to that tells.
	news := h.wanted != nil && !proto.Equal(before, h.report)
	h.due = h.due || news
	h.mu.Unlock()
	if news {
		h.notify()
	}
}

func (h *held) makeReportLocked() {
	st, errs := h.reported, slices.Concat(h.later, h.refused) // the last reason counts
	why := reasons(errs)
	report := &wire.RegionalReport{Revision: st.Revision}
	rules := map[string]string{} // digests by tenant
	for _, it := range st.Items {
		report.Items = append(report.Items, &wire.ItemState{Kind: it.Kind, Name: it.Name, Digest: it.Digest, Error: why[holdings.Key(it)]})
		delete(why, holdings.Key(it))
		if it.Kind == region.KindRules {
			rules[it.Name] = it.Digest
		}
	}
	for _, e := range errs {
		key := e.Kind + "/" + e.Name
		if reason, ok := why[key]; ok {
			tenant, _, _ := strings.Cut(e.Name, "/")
			report.Items = append(report.Items, &wire.ItemState{Kind: e.Kind, Name: e.Name, Digest: rules[tenant], Error: reason})
			delete(why, key)
		}
	}
	h.report = report
}

// keepGood stores the last good set: of an item that was refused, the one before.
func (h *held) keepGood(st *wire.DesiredState, errs []ItemError) {
	why := reasons(errs)
	good := map[string]*wire.Item{}
	for _, it := range st.Items {
		key := holdings.Key(it)
		if why[key] == "" {
			good[key] = it
		} else if h.good[key] != nil {
			good[key] = h.good[key]
		}
	}
	h.good = good
	needed := map[string]bool{}
	for _, it := range h.good {
		needed[it.Digest] = true
	}
	stored := maps.Clone(needed)
	for _, it := range h.applied.GetItems() {
		needed[it.Digest] = true
	}
	maps.DeleteFunc(h.blobs, func(digest string, _ []byte) bool { return !needed[digest] })
	if err := h.save(stored); err != nil {
		h.log.Error("what this regional holds is in effect, but could not be stored; a restart without control goes on with what was stored before", "err", err)
	}
}

// clipError keeps a report with thousands of refused items within what a message may hold.
func clipError(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?") // else the report could not be sent
}

func (h *held) setFile() string { return filepath.Join(h.dir, "set") }

func (h *held) blobDir() (*holdings.Dir, error) {
	return holdings.Open(filepath.Join(h.dir, "blobs"), 0o640, false)
}

// save stores the good set: first the blobs, then the list of them, in one step.
// What the list does not name any more is removed last.
func (h *held) save(keep map[string]bool) error {
	dir, err := h.blobDir()
	if err != nil {
		return err
	}
	for digest := range keep {
		if dir.Has(digest, int64(len(h.blobs[digest]))) {
			continue // load checks what it holds
		}
		if err := dir.Write(digest, h.blobs[digest]); err != nil {
			return err
		}
	}
	set := &wire.DesiredState{}
	for _, k := range slices.Sorted(maps.Keys(h.good)) {
		set.Items = append(set.Items, h.good[k])
	}
	set.Revision = wire.RevisionOf(set.Items)
	b, err := proto.Marshal(set)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(h.setFile(), b, 0o640); err != nil {
		return err
	}
	return dir.Keep(keep)
}

// load reads the stored set. A blob that is not what its name says is removed, and
// its item left out until control can be asked for it again. nil: nothing usable.
func (h *held) load() *wire.DesiredState {
	b, err := os.ReadFile(h.setFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var set *wire.DesiredState
	if err == nil {
		set, err = decodeSet(b)
	}
	var dir *holdings.Dir
	if err == nil {
		dir, err = h.blobDir()
	}
	if err != nil {
		h.log.Error("the stored inventory and rules can't be read; there are none until control sends them again", "file", h.setFile(), "err", err)
		return nil
	}
	usable := &wire.DesiredState{}
	for _, it := range set.Items {
		blob, err := dir.Read(it.Digest)
		if err == nil && int64(len(blob)) != it.Size {
			err = errors.New("the list names another size")
		}
		if err != nil {
			h.log.Error("a stored item can't be used; it is missing until control sends it again", "item", holdings.Key(it), "err", err)
			continue
		}
		usable.Items = append(usable.Items, it)
		h.blobs[it.Digest], h.good[holdings.Key(it)] = blob, it
	}
	if len(usable.Items) == 0 && len(set.Items) > 0 {
		return nil
	}
	usable.Revision = wire.RevisionOf(usable.Items)
	return usable
}

// decodeSet parses and checks a stored set.
func decodeSet(b []byte) (*wire.DesiredState, error) {
	set := &wire.DesiredState{}
	if err := proto.Unmarshal(b, set); err != nil {
		return nil, err
	}
	return set, holdings.Check(set, regionalLimits)
}

// takeDue returns the report that is to be sent, if any.
func (h *held) takeDue() *wire.RegionalReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.due {
		return nil
	}
	h.due = false
	return h.report
}

// newStream: control says on each stream what it wants, and that is answered then.
func (h *held) newStream() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.due = false
}

func (h *held) statusNow() HeldStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}
