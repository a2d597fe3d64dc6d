package engine

// Size is what an engine holds.
type Size struct {
	HeadSeries int64 // in memory
	// BlockSamples are in blocks, BlockBytes what these take on the disk; the newest hours
	// are in the head and its log.
	BlockSamples, BlockBytes int64
	LogBytes                 int64 // of the head's log
}

// Size returns what the engine holds now.
func (e *Engine) Size() Size {
	s := Size{HeadSeries: int64(e.db.Head().NumSeries()), LogBytes: e.db.Head().Size()}
	for _, b := range e.db.Blocks() {
		s.BlockSamples += int64(b.Meta().Stats.NumSamples)
		s.BlockBytes += b.Size()
	}
	return s
}
