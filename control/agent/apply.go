package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/internal/backoff"
	"muster.dev/muster/internal/holdings"
	"muster.dev/muster/internal/journal"
	"muster.dev/muster/internal/wire"
)

// desired.json, with the changes beside it, says what the site should hold and what it last
// held with success; blobs/<digest> is the content of both.
const (
	desiredFile = "desired.json"
	blobDir     = "blobs"

	settleAfter = 200 * time.Millisecond
)

// desiredState is the agent's side of the desired state. Its own lock; the disk
// belongs to applyLoop alone.
type desiredState struct {
	mu     sync.Mutex
	target *wire.DesiredState // the newest that control wants; nil: never heard
	lost   bool               // a change could not be followed
	clear  bool               // nothing is wanted any more, whatever control says
	client wire.UplinkClient  // nil: not connected
	wake   chan struct{}
	noted  chan struct{}     // appliers of sets said something
	fails  map[string]string // kind/name → why it could not be applied
	proved map[string]string // kind/name → digest that proved itself, not on disk yet

	sweep sync.Mutex // held while blobs are removed; before mu

	held    stored            // as on disk
	file    *journal.File     // the disk
	running map[string]string // kind/name → digest that was applied since the start
	applied string            // revision that is wholly in effect
}

// validate checks a desired state before anything is done with it.
func validate(d *wire.DesiredState, maxBlob int64) error {
	if err := holdings.Check(d, holdings.Limits{Items: wire.MaxItems, Bytes: maxBlob}); err != nil {
		return fmt.Errorf("desired state: %w", err)
	}
	return nil
}

// loadDesired reads what survived; a damaged file is set aside, not fatal: control
// sends it all again.
func (a *Agent) loadDesired() error {
	d := &a.desired
	d.wake, d.noted = make(chan struct{}, 1), make(chan struct{}, 1)
	d.running, d.fails, d.proved = map[string]string{}, map[string]string{}, map[string]string{}
	d.held.Good = map[string]string{}
	var err error
	if a.blobs, err = holdings.Open(filepath.Join(a.opts.Dir, blobDir), 0o600, false); err != nil {
		return fmt.Errorf("agent state: %w", err)
	}
	return a.loadStored()
}

func (d *desiredState) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// want takes a new state; an older one that was not applied yet is dropped.
func (d *desiredState) want(s *wire.DesiredState) {
	d.mu.Lock()
	if d.clear {
		s = nothing()
	}
	d.target, d.lost = s, false
	d.mu.Unlock()
	d.poke()
}

// change takes a new state by what is other in it than in the one that was told last, or, in
// a session that has told none yet, than in the one on the disk. On an error the next
// session asks for the whole of it.
func (d *desiredState) change(c *wire.DesiredChange) error {
	d.mu.Lock()
	if d.clear {
		d.mu.Unlock()
		return nil
	}
	from := d.target
	if from.GetRevision() != c.GetAfter() && d.held.Revision == c.GetAfter() {
		from = d.held.state()
	}
	to, err := wire.Changed(from, c)
	d.lost = err != nil
	d.mu.Unlock()
	if err != nil {
		return err
	}
	d.want(to)
	return nil
}

func (d *desiredState) connected(c wire.UplinkClient) {
	d.mu.Lock()
	d.client = c
	d.mu.Unlock()
	if c != nil {
		d.poke()
	}
}

// revision is what the site has on its disk; empty, if it has to be told all of it.
func (d *desiredState) revision() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		return ""
	}
	return d.held.Revision
}

func (d *desiredState) appliedRevision() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied
}

// effective is the digest in effect of the one item of a kind; empty if none is.
func (d *desiredState) effective(kind string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, digest := range d.running {
		if strings.HasPrefix(k, kind+"/") {
			return digest
		}
	}
	return ""
}

// applyLoop brings the site to the newest state, again and again until it holds.
func (a *Agent) applyLoop(ctx context.Context) {
	a.restore(ctx)
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	settle := time.NewTimer(time.Hour)
	defer settle.Stop()
	settle.Stop()
	for failed, settling := 0, false; ; {
		select {
		case <-ctx.Done():
			return
		case <-a.desired.noted:
			if !settling { // a thousand words are settled together
				settling = true
				settle.Reset(settleAfter)
			}
			continue
		case <-settle.C:
			settling = false
			if err := a.settle(); err != nil {
				a.noteError(err)
				a.opts.Logger.Warn("can't write down what is in effect", "err", err)
			}
			continue
		case <-retry.C:
		case <-a.desired.wake:
			failed = 0
		}
		err := a.reconcile(ctx)
		wait := time.Hour
		if err != nil && ctx.Err() == nil {
			failed++
			// What a site refuses today it mostly refuses in a second, too.
			wait = backoff.Bound(failed, a.opts.MinBackoff, 10*time.Minute)
			a.noteError(err)
			a.opts.Logger.Warn("the desired state is not in effect; trying again", "err", err, "wait", wait)
		}
		retry.Reset(wait)
	}
}

// restore applies, at the start, what was last applied with success, so that the
// site runs even if what came after can't be applied.
func (a *Agent) restore(ctx context.Context) {
	d := &a.desired
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	for _, it := range held.Items {
		digest := held.Good[it.key()]
		if digest == "" || a.opts.Sets[it.Kind] != nil {
			continue
		}
		it.Digest = digest
		blob, err := a.readBlob(digest)
		if err == nil {
			it.Size = int64(len(blob))
			err = a.applyItem(ctx, it, blob)
		}
		if err != nil {
			a.opts.Logger.Warn("can't apply what was last in effect", "item", it.key(), "err", err)
		}
	}
}

// reconcile fetches what is missing, notes the state on disk, and applies what is
// not in effect.
func (a *Agent) reconcile(ctx context.Context) error {
	d := &a.desired
	d.mu.Lock()
	target, client := d.target, d.client
	d.mu.Unlock()
	if target == nil {
		return nil
	}
	if err := validate(target, a.opts.MaxBlob); err != nil {
		a.SetCondition("DesiredStateValid", "False", "Invalid", err.Error())
		return err
	}
	// What has proved itself is to go back to from what comes now. Before anything is
	// fetched, which is not held yet and would be swept.
	if d.anyProved() {
		if err := a.settle(); err != nil {
			return err
		}
	}
	missing := a.fetch(ctx, client, target.Items)
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	old := d.held
	next := stored{Revision: target.Revision, Good: old.Good}
	for _, it := range target.Items {
		next.Items = append(next.Items, storedItem{it.Kind, it.Name, it.Digest, it.Size})
	}
	d.mu.Unlock()
	if old.Revision != next.Revision {
		if err := a.store(next); err != nil {
			return err
		}
	}
	err := a.applyAll(ctx, next, old, missing)
	a.sweepBlobs()
	a.reportChanged()
	return err
}

func (a *Agent) applyAll(ctx context.Context, next, old stored, missing map[string]error) error {
	d := &a.desired
	good := map[string]string{}
	wanted := map[string]bool{}
	var errs []error
	for _, it := range next.Items {
		wanted[it.key()] = true
		d.mu.Lock()
		same := d.running[it.key()] == it.Digest
		d.mu.Unlock()
		err := missing[it.key()]
		if err == nil && a.opts.Sets[it.Kind] != nil {
			if was := next.Good[it.key()]; was != "" {
				good[it.key()] = was
			}
			if same {
				d.mu.Lock()
				delete(d.fails, it.key()) // that another one could not be fetched
				d.mu.Unlock()
			}
			continue // in its own time
		}
		if err == nil && !same {
			var blob []byte
			if blob, err = a.readBlob(it.Digest); err == nil {
				err = a.applyItem(ctx, it, blob)
			}
		}
		d.mu.Lock()
		if err != nil {
			errs = append(errs, fmt.Errorf("apply %s: %w", it.key(), err))
			d.fails[it.key()] = err.Error()
			if was := next.Good[it.key()]; was != "" {
				good[it.key()] = was
			}
		} else {
			delete(d.fails, it.key())
			good[it.key()] = it.Digest
		}
		d.mu.Unlock()
	}
	for _, it := range old.Items {
		if !wanted[it.key()] {
			errs = append(errs, a.removeItem(ctx, it))
		}
	}
	for kind, ap := range a.opts.Sets {
		ap.TakeSet(a.set(kind, next, missing))
	}
	a.tellNotTaken(next, old)
	err := errors.Join(errs...)
	d.mu.Lock()
	if err == nil {
		d.settleLocked()
	}
	d.mu.Unlock()
	a.setAppliedConditions(next)
	if maps.Equal(good, next.Good) {
		return err // what is on disk is true: spare the flash
	}
	next.Good = good
	return errors.Join(err, a.store(next))
}

// applyItem calls the applier and notes success.
func (a *Agent) applyItem(ctx context.Context, it storedItem, blob []byte) error {
	ap := a.opts.Appliers[it.Kind]
	if ap == nil {
		return a.unknownKind(it.Kind)
	}
	err := ap.Apply(ctx, it.wire(), blob)
	result := "ok"
	if err != nil {
		result = "failed"
	}
	a.metrics.applies.WithLabelValues(it.Kind, result).Inc()
	if err != nil {
		return err
	}
	a.desired.mu.Lock()
	a.desired.running[it.key()] = it.Digest
	a.desired.mu.Unlock()
	a.opts.Logger.Info("applied", "item", it.key(), "digest", it.Digest[:12], "bytes", len(blob))
	return nil
}

func (a *Agent) removeItem(ctx context.Context, it storedItem) error {
	if r, ok := a.opts.Appliers[it.Kind].(Remover); ok {
		if err := r.Remove(ctx, it.wire()); err != nil {
			return fmt.Errorf("remove %s: %w", it.key(), err)
		}
	}
	a.desired.mu.Lock()
	delete(a.desired.running, it.key())
	delete(a.desired.fails, it.key())
	a.desired.mu.Unlock()
	return nil
}

// setAppliedConditions sets the condition <Kind>Applied of each kind in the state.
func (a *Agent) setAppliedConditions(next stored) {
	a.desired.mu.Lock()
	kinds := map[string][]string{}
	for _, it := range next.Items {
		kinds[it.Kind] = append(kinds[it.Kind], "")
		if why := a.desired.fails[it.key()]; why != "" {
			kinds[it.Kind] = append(kinds[it.Kind], it.Name+": "+why)
		}
	}
	a.desired.mu.Unlock()
	for kind, lines := range kinds {
		lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" })
		if len(lines) > 0 {
			msg := strings.Join(lines, "; ")
			a.SetCondition(kind+"Applied", "False", "Refused", msg[:min(len(msg), 1000)])
		} else {
			a.SetCondition(kind+"Applied", "True", "Applied", "")
		}
	}
	a.mu.Lock()
	bad := a.conditions["DesiredStateValid"] != nil
	a.mu.Unlock()
	if bad {
		a.SetCondition("DesiredStateValid", "True", "Valid", "")
	}
}

// readBlob reads and verifies; a damaged file is removed, to be fetched again.
func (a *Agent) readBlob(digest string) ([]byte, error) {
	b, err := a.blobs.Read(digest)
	if errors.Is(err, holdings.ErrDamaged) {
		a.desired.poke()
		return nil, fmt.Errorf("%w; fetching it again", err)
	}
	return b, err
}

// ensureBlob fetches a blob that the disk does not hold, going on where an earlier
// download stopped.
func (a *Agent) ensureBlob(ctx context.Context, client wire.UplinkClient, it *wire.Item) error {
	if a.blobs.Has(it.Digest, it.Size) {
		return nil
	}
	if client == nil {
		return fmt.Errorf("fetch %s: not connected", holdings.Key(it))
	}
	n, err := a.blobs.Fetch(ctx, holdings.Fetcher{}, client, it.Digest, it.Size)
	if err == nil && n != it.Size {
		err = fmt.Errorf("it has %d bytes, the desired state says %d", n, it.Size)
	}
	if err != nil {
		return fmt.Errorf("fetch %s (%.12s): %w", holdings.Key(it), it.Digest, err)
	}
	return nil
}

// sweepBlobs removes what neither the state nor the last good one needs.
func (a *Agent) sweepBlobs() {
	d := &a.desired
	d.sweep.Lock()
	defer d.sweep.Unlock()
	d.mu.Lock()
	keep := map[string]bool{}
	for _, digest := range d.proved {
		keep[digest] = true
	}
	for _, it := range d.held.Items {
		keep[it.Digest] = true
	}
	for _, digest := range d.held.Good {
		keep[digest] = true
	}
	d.mu.Unlock()
	_ = a.blobs.Keep(keep) // what stays costs room alone, and the next sweep tries again
}
