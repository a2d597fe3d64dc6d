package kube

import (
	"errors"
	"slices"
	"time"

	"muster.dev/muster/internal/backoff"
)

// A bundle moves together. The API server is asked first whether it would take all of it, by
// a dry run, which does not tell everything: a quota may have room for each object and not for
// all, and what must be removed to be made anew is not there any more when it is refused. Then
// what was changed goes back to the last good content, and the whole is tried again later.

// back tells whether the last good content is to be in effect instead of what is wanted.
func (su *savedUnit) back() bool { return su.RolledBack || su.Refused != "" }

// hold has those of which something is to be done, and nothing else is wrong, wait for one of
// their bundle.
func (u *unit) hold(todos []todo, bad string) {
	for i, it := range u.items {
		if it.err == nil && todos[i] != nothing {
			it.err = wait(reasonBundle, "waits for %s of its bundle", bad)
		}
	}
}

// turns returns the indexes of the items in their order, but for one that comes first: what
// was refused the last time, so that nothing else is touched if it is refused again.
func (u *unit) turns(first string) []int {
	order := make([]int, 0, len(u.items))
	for i, it := range u.items {
		if it.name == first {
			order = slices.Insert(order, 0, i)
		} else {
			order = append(order, i)
		}
	}
	return order
}

// giveUp has the unit go back for some time, since an item was refused, if part of it is
// changed by now and there is something to go back to. again: it has gone back before.
func (w *worker) giveUp(u *unit, su *savedUnit, bad *item, again bool) {
	if bad.err.waiting || !again && !w.halfway(u) || !w.canGoBack(u) {
		return
	}
	su.Refused, su.Reason, su.Message = bad.name, bad.err.reason, clip(bad.err.Error())
	u.retry = time.Now().Add(backoff.Bound(u.refusals, w.opts.MinBackoff, w.opts.MaxBackoff))
	u.refusals++
}

// refusedOnce has items say why they are as they were, while the unit waits to be tried again.
func (u *unit) refusedOnce(su *savedUnit) {
	if su.Refused == "" {
		return
	}
	u.look(u.retry)
	for _, it := range u.items {
		switch {
		case it.err != nil:
		case it.name == su.Refused:
			it.err = &refusal{settled: true, reason: su.Reason, err: errors.New(su.Message)}
		case it.good != it.wanted:
			it.err = wait(reasonBundle, "waits for %s of its bundle, with which it went back", su.Refused)
		}
	}
}

// halfway tells whether something of the unit is changed already, or removed to be made anew.
func (w *worker) halfway(u *unit) bool {
	return slices.ContainsFunc(u.items, func(it *item) bool {
		if it.good == it.wanted {
			return false
		}
		l := w.lives.get(it.name)
		return l == nil && it.good != "" || l != nil && l.digest == it.wanted
	})
}

// canGoBack tells whether there is a content to go back to, all of which is at hand: with a
// part of it the rest would be taken for what is new, and removed.
func (w *worker) canGoBack(u *unit) bool {
	other := false
	for _, it := range u.items {
		if it.good == "" || it.good == it.wanted {
			continue
		}
		if _, err := w.taken.Blob(it.good); err != nil {
			return false
		}
		other = true
	}
	return other
}

// hasRun tells whether to go back would run a Job once more, at each attempt at the new one.
func hasRun(it *item, t todo, l *live) bool {
	return it.groupKind() == jobs && l == nil && (t == put || t == mend)
}
