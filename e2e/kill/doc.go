// Package kill ends control with kill -9, again and again, while a rollout is under way, and
// looks whether anybody could tell afterwards. It holds one test, which `make test-kill`
// runs; it stands apart from package e2e since it takes half an hour and links little.
package kill
