package source

import (
	"fmt"
	"strings"
	"testing"
)

// A fleet with hundreds of labels has a table, of as many columns as the console gives.
func TestInventoryColumns(t *testing.T) {
	many := func(n, long int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%0*d", long, i))
		}
		return out
	}
	for _, c := range []struct {
		labels, versions []string
		columns, left    int
	}{
		{many(3, 3), many(2, 3), 12, 0},
		{many(200, 3), many(2, 3), 50, 159},
		{many(200, 3), many(60, 3), 50, 217},
		{many(40, 300), nil, 26, 21},
	} {
		got, left := inventoryColumns(c.labels, c.versions)
		if len(got) != c.columns || left != c.left || len(strings.Join(got, ",")) > maxColumnsBytes {
			t.Errorf("%d labels, %d versions: %d columns, %d left", len(c.labels), len(c.versions), len(got), left)
		}
		if len(c.versions) > 0 && got[len(got)-1][:8] != "version." {
			t.Errorf("no version among %v", got)
		}
	}
}
