// Package centre takes control away from a fleet that runs, and looks whether anybody could tell
// afterwards: by kill -9, again and again, while a rollout is under way (`make test-kill`, half an
// hour), and with its disk, out of a backup. It stands apart from package e2e since it needs no demo
// and links little.
package centre
