// Package restore takes a fleet's control away and brings it back out of a backup, beside a
// regional and sites that went on meanwhile. It stands apart from package e2e since it needs no
// demo and links little.
package restore
