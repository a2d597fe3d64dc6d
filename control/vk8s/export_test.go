package vk8s

import "time"

// RecheckEvery changes how often the right to a session is looked at.
func (m *Mount) RecheckEvery(d time.Duration) { m.recheck = d }
