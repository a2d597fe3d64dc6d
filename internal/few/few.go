// Package few says in one line what a list has, however long it is: messages of conditions,
// errors and tables name some of many sites, nodes or objects. Everybody may call it; it knows
// nothing of what it names.
package few

import (
	"fmt"
	"strings"
)

// Of is the list with between between its members: of more than most of them the first, and how
// many more there are, as in "berlin, oslo and 3 more".
func Of(list []string, most int, between string) string {
	if n := len(list) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], between), n)
	}
	return strings.Join(list, between)
}
