// Package factoryreset resets a site to how it was before it registered, when control asks
// and the site's own operator has said that it may: it confirms the request with a nonce that
// lives in this process alone, follows the order that control signs for it, and then takes
// away what the site was given, step by step, so that a power cut at any of them is gone over.
//
// The agent hands it the item of internal/factoryreset's kind; muster-edge runs it, and calls
// Finish at the next start, before anything else runs. It decides nothing about who comes
// back as what: control does.
package factoryreset

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"muster.dev/muster/control/agent"
	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/identity"
	"muster.dev/muster/internal/wire"
)

// Agent is what this package needs of *agent.Agent.
type Agent interface {
	Identity() (site fleet.SiteID, region string, ok bool)
	Key() (key crypto.Signer, hash string, err error)
	Trusted() *x509.CertPool
	Clear()
	Empty() bool
	ReportChanged()
}

// Options of New; Dir and Logger are required.
type Options struct {
	// Dir is where it remembers how far it is; made if missing.
	Dir string
	// Refuses is why this site does not take resets; empty: it does.
	Refuses string
	// Unsent and Left say in words what there is yet: of samples that were not sent, and of
	// what runs on the site. Empty, or nil: nothing.
	Unsent, Left func() string
	// Within is how long it waits for that; then it goes on. Default 15 min.
	Within time.Duration
	Every  time.Duration // how often it looks; default 1 s
	// Keep has what is in Dir outlive the machine's disk, where that may go with a pod, and
	// returns when it does; it tries until ctx ends. The site tells that it has begun, and takes
	// something away, only then. nil: the disk stays.
	Keep func(ctx context.Context) error
	// Restart has the process end, or start anew: Finish does the rest.
	Restart func()
	Logger  *slog.Logger
	FS      disk.FS // nil: the operating system's
	// Elapsed is a clock that nobody sets, Now one that certificates are checked by; nil: those
	// of the process.
	Elapsed func() time.Duration
	Now     func() time.Time
}

// Reset is safe for concurrent use.
type Reset struct {
	*agent.Newest
	o Options

	mu      sync.Mutex
	request string // that nonce is for
	nonce   []byte
	made    time.Duration
	answer  *wire.FactoryResetAnswer
	journal *journal // nil: none has begun
}

// journal is what survives, in reset.json: it is there from the moment that there is no way
// back until all is done.
type journal struct {
	Request string       `json:"request"`
	Site    fleet.SiteID `json:"site"`
	Drain   bool         `json:"drain,omitempty"`
	// Wiping: what the running site could give back is given back; Finish does the rest.
	Wiping bool `json:"wiping,omitempty"`
}

const (
	journalFile = "reset.json"
	nextKeyFile = "next-key.pem"
)

// NextKeyFile is the one of Files that holds the key with which the site comes back.
const NextKeyFile = nextKeyFile

// Files are those of Options.Dir, the one that says that a reset has begun last.
func Files() []string { return []string{nextKeyFile, journalFile} }

// New reads what an earlier process remembered. It changes nothing.
func New(o Options) (*Reset, error) {
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Within <= 0 {
		o.Within = 15 * time.Minute
	}
	if o.Every <= 0 {
		o.Every = time.Second
	}
	if o.Elapsed == nil {
		began := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(began) } // monotonic
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	none := func() string { return "" }
	if o.Unsent == nil {
		o.Unsent = none
	}
	if o.Left == nil {
		o.Left = none
	}
	if err := disk.MkdirAll(o.FS, o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("factory reset: %w", err)
	}
	j, err := readJournal(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &Reset{Newest: agent.NewNewest(), o: o, journal: j}
	if j != nil && o.Keep == nil {
		r.answer = hasBegun(j)
	}
	return r, nil
}

func readJournal(dir string) (*journal, error) {
	b, err := os.ReadFile(filepath.Join(dir, journalFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none has begun
	}
	j := &journal{}
	if err == nil {
		err = json.Unmarshal(b, j)
	}
	if err == nil {
		err = j.Site.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("factory reset: %s: %w; a reset has begun and can't go on: remove the state directory and register the machine anew", filepath.Join(dir, journalFile), err)
	}
	return j, nil
}

func hasBegun(j *journal) *wire.FactoryResetAnswer { return begun(j.Request, "the site has begun") }

func begun(request, message string) *wire.FactoryResetAnswer {
	return &wire.FactoryResetAnswer{Request: request, Begun: true, Message: message}
}

// Answer is agent.Options.FactoryReset.
func (r *Reset) Answer() *wire.FactoryResetAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer
}

// Begun tells whether there is no way back: the agent must be cleared before it runs.
func (r *Reset) Begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.journal != nil
}

// Run answers requests and follows orders until ctx ends. It is called once.
func (r *Reset) Run(ctx context.Context, a Agent) error {
	for !r.Begun() {
		renew := time.NewTimer(factoryreset.NonceLife)
		select {
		case <-ctx.Done():
			renew.Stop()
			return nil
		case <-r.Changed():
		case <-renew.C:
		}
		renew.Stop()
		r.look(a)
	}
	return r.empty(ctx, a)
}

// look goes over what control asks now.
func (r *Reset) look(a Agent) {
	set := r.Set()
	if set == nil {
		return
	}
	if len(set.Items) == 0 {
		r.say(a, nil)
		r.request, r.nonce = "", nil
		return
	}
	item := &set.Items[0]
	err := item.Err
	if err == nil {
		err = r.take(a, set, item)
	}
	if err != nil {
		r.o.Logger.Warn("a request for a factory reset is not followed", "err", err)
	}
	set.Applied(item.Name, item.Digest, err)
}

func (r *Reset) say(a Agent, answer *wire.FactoryResetAnswer) {
	r.mu.Lock()
	same := r.answer == nil && answer == nil
	r.answer = answer
	r.mu.Unlock()
	if !same {
		a.ReportChanged()
	}
}

func (r *Reset) take(a Agent, set *agent.Set, item *agent.SetItem) error {
	b, err := set.Blob(item.Digest)
	if err != nil {
		return err
	}
	req, err := factoryreset.Decode(b)
	if err != nil {
		return err
	}
	site, _, ok := a.Identity()
	key, hash, err := a.Key()
	switch {
	case err != nil:
		return err
	case !ok || req.Site != site:
		return fmt.Errorf("it is for site %s, which this is not", req.Site)
	case req.Key != hash:
		return errors.New("it is for a key that this site had before, or never had")
	}
	if r.o.Refuses != "" {
		r.say(a, &wire.FactoryResetAnswer{Request: req.ID, Refused: r.o.Refuses})
		return errors.New(r.o.Refuses)
	}
	if len(req.Order) > 0 && req.ID == r.request {
		order, err := factoryreset.OpenOrder(req.Order, a.Trusted(), r.o.Now())
		if err != nil {
			return err
		}
		if ok, err := r.follow(a, order, site, hash); ok || err != nil {
			return err
		}
	}
	if req.ID == r.request && r.o.Elapsed()-r.made < factoryreset.NonceLife {
		return nil // its answer stands
	}
	return r.confirm(a, req.ID, site, key, hash)
}

// confirm makes up a nonce for a request and signs the answer.
func (r *Reset) confirm(a Agent, id string, site fleet.SiteID, key crypto.Signer, hash string) error {
	next, err := r.nextKey(hash)
	if err != nil {
		return err
	}
	nonce := make([]byte, factoryreset.NonceBytes)
	if _, err := rand.Read(nonce); err != nil {
		return fmt.Errorf("make up a nonce: %w", err)
	}
	made := r.o.Elapsed()
	answer := factoryreset.Answer{ID: id, Site: site, Key: hash, NextKey: next, Nonce: nonce}
	sig, err := answer.Sign(key)
	if err != nil {
		return fmt.Errorf("sign the answer: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("sign the answer: %w", err)
	}
	r.request, r.nonce, r.made = id, nonce, made
	r.say(a, &wire.FactoryResetAnswer{Request: id, Nonce: nonce, PublicKey: pub, NextKey: next, Signature: sig})
	r.o.Logger.Info("a factory reset is asked for, and confirmed; it begins with control's order", "request", id)
	return nil
}

// nextKey is the hash of the key that the site comes back with. It stays the same as long as
// the site keeps the one that it has: control knows it from then on.
func (r *Reset) nextKey(hash string) (string, error) {
	name := filepath.Join(r.o.Dir, nextKeyFile)
	if b, err := os.ReadFile(name); err == nil {
		if k, err := agent.ParseKey(b); err == nil {
			if next, err := identity.KeyHash(k.Public()); err == nil && next != hash {
				return next, nil
			}
		}
	}
	pem, next, err := agent.NewKey()
	if err != nil {
		return "", err
	}
	return next, atomicfile.WriteTo(r.o.FS, name, pem, 0o600)
}

// follow begins, if the order is the one for this site as it is now. What was replayed,
// delayed or mixed up is not: false. An error: it is, and the site can't begin.
func (r *Reset) follow(a Agent, o *factoryreset.Order, site fleet.SiteID, hash string) (bool, error) {
	next, err := r.nextKey(hash)
	if err != nil {
		return false, err
	}
	switch age := r.o.Elapsed() - r.made; {
	case o.ID != r.request, o.Site != site, o.Key != hash, o.NextKey != next, len(r.nonce) == 0:
		return false, nil
	case subtle.ConstantTimeCompare(o.Nonce, r.nonce) != 1:
		return false, nil
	case age >= min(factoryreset.NonceLife, o.ValidFor):
		r.request = "" // another nonce, and control decides whether there is time for it
		return false, nil
	}
	j := &journal{Request: o.ID, Site: site, Drain: o.Drain}
	if err := r.save(j); err != nil {
		return false, err
	}
	r.o.Logger.Warn("factory reset: control's order is good, the site begins; there is no way back", "request", o.ID, "drain", o.Drain)
	r.mu.Lock()
	r.journal = j
	r.mu.Unlock()
	if r.o.Keep == nil {
		r.say(a, hasBegun(j))
	}
	return true, nil
}

func (r *Reset) save(j *journal) error {
	b, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("factory reset: %w", err)
	}
	if err := atomicfile.WriteTo(r.o.FS, filepath.Join(r.o.Dir, journalFile), b, 0o600); err != nil {
		return fmt.Errorf("factory reset: %w", err)
	}
	return nil
}

// empty gives back what takes the running site, and then has the process start anew.
func (r *Reset) empty(ctx context.Context, a Agent) error {
	if r.o.Keep != nil {
		if err := r.o.Keep(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("factory reset: keep that it has begun: %w", err)
		}
		r.say(a, hasBegun(r.journal))
	}
	a.Clear()
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	began, said := r.o.Elapsed(), ""
	for {
		var left []string
		if !a.Empty() {
			left = append(left, "what it was told to hold")
		}
		if l := r.o.Left(); l != "" {
			left = append(left, l)
		}
		if l := r.o.Unsent(); r.journal.Drain && l != "" {
			left = append(left, l)
		}
		if len(left) == 0 || r.o.Elapsed()-began >= r.o.Within {
			if len(left) > 0 {
				r.o.Logger.Warn("factory reset: going on without what is left", "left", strings.Join(left, "; "))
			}
			break
		}
		if now := "still there: " + strings.Join(left, "; "); now != said {
			said = now
			r.say(a, begun(r.journal.Request, now))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	j := *r.journal
	j.Wiping = true
	if err := r.save(&j); err != nil {
		return err
	}
	if r.o.Restart != nil {
		r.o.Restart()
	}
	<-ctx.Done() // who ends before is taken for somebody who failed
	return nil
}
