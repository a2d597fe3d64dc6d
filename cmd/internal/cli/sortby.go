package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// addSort gives a list's verb the flag --sort-by, by the headings of its table.
func (g *Globals) addSort(cmd *cobra.Command, header []string) {
	names := make([]string, len(header))
	for i, h := range header {
		names[i] = sortName(h)
	}
	cmd.Flags().StringVar(&g.SortBy, "sort-by", "", "up to three columns ("+strings.Join(names, ", ")+"); a - before one puts its largest first, such as -"+names[len(names)-1])
	_ = cmd.RegisterFlagCompletionFunc("sort-by", func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = before + n
		}
		return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}

// sortName is a heading as it is typed: LAST SEEN is lastSeen, as in the inventory.
func sortName(heading string) string {
	words := strings.FieldsFunc(strings.ToLower(heading), func(r rune) bool { return r == ' ' || r == '-' || r == '/' })
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// sorted orders a table by --sort-by, and with its rows the objects that they show.
func (g *Globals) sorted(obj any, t table) (any, table, error) {
	if g.SortBy == "" {
		return obj, t, nil
	}
	type by struct {
		column int
		down   bool
	}
	var order []by
	for _, name := range strings.Split(g.SortBy, ",") {
		name, down := strings.CutPrefix(strings.TrimSpace(name), "-")
		i := slices.IndexFunc(t.header, func(h string) bool { return strings.EqualFold(sortName(h), name) || strings.EqualFold(h, name) })
		if i < 0 || len(order) == 3 {
			var known []string
			for _, h := range t.header {
				known = append(known, sortName(h))
			}
			return nil, t, fmt.Errorf("--sort-by %s: want up to three columns of %s", g.SortBy, strings.Join(known, ", "))
		}
		order = append(order, by{i, down})
	}
	at := make([]int, len(t.rows))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int {
		for _, o := range order {
			if n := compareCells(t.rows[a][o.column], t.rows[b][o.column], o.down); n != 0 {
				return n
			}
		}
		return 0
	})
	rows := make([][]string, len(at))
	for i, from := range at {
		rows[i] = t.rows[from]
	}
	t.rows = rows
	return permuted(obj, at), t, nil
}

// permuted returns the list, or what has one as its items, in that order.
func permuted(obj any, at []int) any {
	v := reflect.ValueOf(obj)
	switch v.Kind() {
	case reflect.Slice:
		if v.Len() != len(at) {
			return obj
		}
		out := reflect.MakeSlice(v.Type(), len(at), len(at))
		for i, from := range at {
			out.Index(i).Set(v.Index(from))
		}
		return out.Interface()
	case reflect.Map:
		if m, ok := obj.(map[string]any); ok && m["items"] != nil {
			m["items"] = permuted(m["items"], at)
		}
	case reflect.Pointer:
		if items := v.Elem(); items.Kind() == reflect.Struct && items.FieldByName("Items").IsValid() {
			items = items.FieldByName("Items")
			items.Set(reflect.ValueOf(permuted(items.Interface(), at)))
		}
	}
	return obj
}

var (
	cellNumber   = regexp.MustCompile(`^-?\d+(?:\.\d+)?`)
	cellDuration = regexp.MustCompile(`^(?:\d+(?:y|d|h|m|s|ms))+$`)
	cellUnit     = regexp.MustCompile(`(\d+)(ms|y|d|h|m|s)`)
	unitSeconds  = map[string]float64{"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
	// ranks are words that have an order of their own, the least first.
	ranks = map[string]float64{"info": 1, "warning": 2, "critical": 3}
)

// compareCells compares as people read: ages and numbers by their size, - always last.
func compareCells(a, b string, down bool) int {
	if (a == "-") != (b == "-") {
		return map[bool]int{true: 1, false: -1}[a == "-"]
	}
	x, xok := cellValue(a)
	y, yok := cellValue(b)
	n := cmp.Compare(strings.ToLower(a), strings.ToLower(b))
	if xok && yok {
		n = cmp.Or(cmp.Compare(x, y), n)
	}
	if down {
		return -n
	}
	return n
}

func cellValue(s string) (float64, bool) {
	if v, ok := ranks[s]; ok {
		return v, true
	}
	if cellDuration.MatchString(s) {
		sum := 0.0
		for _, m := range cellUnit.FindAllStringSubmatch(s, -1) {
			n, _ := strconv.ParseFloat(m[1], 64)
			sum += n * unitSeconds[m[2]]
		}
		return sum, true
	}
	v, err := strconv.ParseFloat(cellNumber.FindString(s), 64)
	return v, err == nil
}
