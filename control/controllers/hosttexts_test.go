package controllers

import "testing"

// A site names the hosts that fail there; one whose name only begins alike is not among them.
func TestTextsOfAHost(t *testing.T) {
	for text, want := range map[string]bool{
		"shop/db: the port is taken":              true,
		"acme/web: no route; VirtualHost/shop/db": true,
		"shop/db-2: the port is taken":            false,
		"workshop/db: the port is taken":          false,
		"":                                        false,
	} {
		if got := ofHost("shop/db").MatchString(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
