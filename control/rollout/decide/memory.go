package decide

// Memory is what gates have seen of the sites so far: samples of their measures. It is
// lost when control restarts; what was seen of the current wave is gathered anew then,
// and the readings from before sites changed are in the state. Decide and Evaluate add to
// the one that they are given: it belongs to one rollout, and to one goroutine at a time.
type Memory struct{}
