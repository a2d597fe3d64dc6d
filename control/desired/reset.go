package desired

import (
	"bytes"

	"muster.dev/muster/control/desired/render"
	"muster.dev/muster/internal/factoryreset"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/inventory"
	"muster.dev/muster/internal/wire"
)

// resets renders which site is asked for a factory reset. Its methods are called with the
// Store's lock held.
type resets struct {
	made map[fleet.SiteID]*render.List // of the sites that are asked now
}

// sameReset tells whether both are asked for the same.
func sameReset(a, b *inventory.Site) bool {
	return a.Reset == b.Reset || a.Reset != nil && b.Reset != nil && a.Reset.ID == b.Reset.ID && bytes.Equal(a.Reset.Order, b.Reset.Order)
}

// Render returns one list of one item, or none where the site is not asked.
func (rs *resets) Render(site *inventory.Site) []*render.List {
	r := site.Reset
	if r == nil || !site.Counts() {
		delete(rs.made, site.ID)
		return nil
	}
	blob := (&factoryreset.Request{ID: r.ID, Site: site.ID, Key: r.Key, Order: r.Order}).Encode()
	list := rs.made[site.ID]
	if list == nil || !bytes.Equal(list.Pieces[0].Blob, blob) {
		list = &render.List{Pieces: []*render.Piece{{Item: &wire.Item{Kind: factoryreset.Kind, Name: factoryreset.Name, Digest: wire.DigestOf(blob), Size: int64(len(blob))}, Blob: blob}}}
		if rs.made == nil {
			rs.made = map[fleet.SiteID]*render.List{}
		}
		rs.made[site.ID] = list
	}
	return []*render.List{list}
}
