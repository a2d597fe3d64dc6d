// Package releases tests what rollouts decide on releases that are good and bad in known
// ways: a simulated fleet of some hundred sites, with noise, days and nights, faults of
// its own, sites that come and go and sites that are offline, in simulated time. Its
// scores are those of the shipped health model. All of it is tests; nobody imports it.
//
//	go test -tags slicelabels ./loadtest/releases -v                       as in CI
//	go test -tags slicelabels ./loadtest/releases -v -seed 7 -releases 500 more, and others
package releases
