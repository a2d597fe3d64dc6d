package embedded

import (
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2/index/scorch"
	index "github.com/blevesearch/bleve_index_api"
	segment "github.com/blevesearch/scorch_segment_api/v2"
	zap "github.com/blevesearch/zapx/v16"

	"muster.dev/muster/internal/disk"
)

// segments makes the segments of one index, as scorch's own do, and syncs their names:
// scorch writes a segment, syncs it, opens it, and then commits what points to it, and leaves
// it to the file system that the segment's name is on the disk by then.
type segments struct {
	*zap.ZapPlugin
	loaded atomic.Bool // what is opened from now on is new
}

var _ scorch.SegmentPlugin = (*segments)(nil)

// registry guards what scorch has one of in a process: the table in which an index looks
// up, as it opens, who makes its segments. Each index finds its own there.
var registry sync.Mutex

// mergePlan says when scorch merges segments. Up to floorSegment records a segment counts as
// small, and as many small ones stand as scorch has tiers for. Its default is 2,000, by which
// an index that holds ten thousand is written anew with every few batches: batches of some
// dozens of records are what a regional's sites send.
var mergePlan = map[string]any{"FloorSegmentSize": floorSegment}

const floorSegment = 100

// openScorch opens an index in a directory, of which no name is lost with the power.
func openScorch(dir string, analysis *index.AnalysisQueue) (index.Index, error) {
	registry.Lock()
	defer registry.Unlock()
	s := &segments{ZapPlugin: &zap.ZapPlugin{}}
	scorch.RegisterSegmentPlugin(s, true)
	// Each batch is on disk before Batch returns; "unsafe_batch" would change that.
	idx, err := scorch.NewScorch(scorch.Name, map[string]any{"path": dir, "bolt_timeout": "10s", "numSnapshotsToKeep": 1, "scorchMergePlanOptions": mergePlan}, analysis)
	if err != nil {
		return nil, err
	}
	if err := idx.Open(); err != nil {
		return nil, err
	}
	s.loaded.Store(true)
	if err := (disk.OS{}).SyncDir(dir); err != nil { // the table of segments may be new
		_ = idx.Close()
		return nil, err
	}
	return idx, nil
}

// Open implements scorch.SegmentPlugin.
func (s *segments) Open(path string) (segment.Segment, error) {
	if s.loaded.Load() {
		if err := (disk.OS{}).SyncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	return s.ZapPlugin.Open(path)
}
