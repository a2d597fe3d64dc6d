package wire

import "fmt"

// maxChange is the part of a desired state's items, as a divisor, up to which it is told by
// its changes: with more, the whole list costs hardly more and heals everything.
const maxChange = 2

// ChangeBetween tells how from becomes to; nil, if either is nil or the whole of to is as well
// sent. Items are compared by what they say; where both states share them, as those of
// control/desired and of regionals do, it costs a few microseconds for 10,000 items.
func ChangeBetween(from, to *DesiredState) *DesiredChange {
	if from == nil || to == nil {
		return nil
	}
	old, now := from.Items, to.Items
	start := 0
	for start < len(old) && start < len(now) && sameItem(old[start], now[start]) {
		start++
	}
	oldEnd, nowEnd := len(old), len(now)
	for oldEnd > start && nowEnd > start && sameItem(old[oldEnd-1], now[nowEnd-1]) {
		oldEnd, nowEnd = oldEnd-1, nowEnd-1
	}
	c := &DesiredChange{Revision: to.Revision, After: from.Revision}
	added := 0
	splice := &Splice{Keep: uint32(start)}
	flush := func() {
		if splice.Drop > 0 || len(splice.Add) > 0 {
			c.Splices = append(c.Splices, splice)
			splice = &Splice{}
		}
	}
	at := map[itemID]int{} // where an item of now is in old
	for i, it := range old[start:oldEnd] {
		at[idOfItem(it)] = start + i
	}
	i := start
	for _, it := range now[start:nowEnd] {
		if j, ok := at[idOfItem(it)]; ok && j >= i {
			splice.Drop = uint32(j - i)
			flush()
			splice.Keep++
			i = j + 1
			continue
		}
		splice.Add = append(splice.Add, it)
		added++
	}
	splice.Drop += uint32(oldEnd - i)
	flush()
	if added > len(now)/maxChange {
		return nil
	}
	return c
}

// Changed is the state that from becomes by c; its revision is verified, and items that
// stayed are those of from. Neither argument is changed.
func Changed(from *DesiredState, c *DesiredChange) (*DesiredState, error) {
	if from == nil || from.Revision != c.GetAfter() {
		return nil, fmt.Errorf("desired state: a change of revision %.64q, and %.64q is held", c.GetAfter(), from.GetRevision())
	}
	items, err := Spliced(from.Items, c.GetSplices())
	if err != nil {
		return nil, err
	}
	if rev := RevisionOf(items); rev != c.GetRevision() {
		return nil, fmt.Errorf("desired state: a change leads to revision %.12s and should to %.64q", rev, c.GetRevision())
	}
	return &DesiredState{Revision: c.Revision, Items: items}, nil
}

// Spliced is the list that from becomes by the splices of a DesiredChange, whose revision the
// caller verifies. Neither argument is changed.
func Spliced(from []*Item, splices []*Splice) ([]*Item, error) {
	rest := from
	items := make([]*Item, 0, len(rest)+len(splices))
	for _, s := range splices {
		keep, drop := uint64(s.GetKeep()), uint64(s.GetDrop())
		if keep+drop > uint64(len(rest)) {
			return nil, fmt.Errorf("desired state: a change keeps %d items and drops %d where %d are left", keep, drop, len(rest))
		}
		items = append(append(items, rest[:keep]...), s.GetAdd()...)
		rest = rest[keep+drop:]
	}
	return append(items, rest...), nil
}

type itemID struct {
	kind, name, digest string
	size               int64
}

func idOfItem(it *Item) itemID {
	return itemID{it.GetKind(), it.GetName(), it.GetDigest(), it.GetSize()}
}

func sameItem(a, b *Item) bool {
	return a == b || idOfItem(a) == idOfItem(b)
}
