package sitequery

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What is quick is held here against the plain way, of which a reader sees at once what it does.

func compareVersions(a, b string) int { return strings.Compare(versionRank(a), versionRank(b)) }

// plainVersions compares versions run by run.
func plainVersions(a, b string) int {
	a, b = plainVersion(a), plainVersion(b)
	mainA, preA, _ := strings.Cut(a, "-")
	mainB, preB, _ := strings.Cut(b, "-")
	if n := plainRuns(noZeros(mainA), noZeros(mainB)); n != 0 {
		return n
	}
	switch {
	case preA == preB:
		return 0
	case preA == "":
		return 1
	case preB == "":
		return -1
	}
	return plainRuns(preA, preB)
}

func plainRuns(a, b string) int {
	for a != "" || b != "" {
		var x, y string
		x, a = run(a)
		y, b = run(b)
		n := 0
		switch {
		case digits(x) && digits(y):
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			n = cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
		case digits(x) && y != "":
			n = -1
		case digits(y) && x != "":
			n = 1
		default:
			n = strings.Compare(x, y)
		}
		if n != 0 {
			return n
		}
	}
	return 0
}

// word is some of the pieces, one after the other.
func word(r *rand.Rand, most int, pieces ...string) string {
	out := ""
	for range r.IntN(most + 1) {
		out += pieces[r.IntN(len(pieces))]
	}
	return out
}

func TestRanksCompareAsVersionsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	some := func() string {
		return word(r, 6, "0", "1", "10", "9", ".", ".0", "-", "rc", "a", "v", "+", "k3s", "é", " ")
	}
	differ := 0
	for range 200_000 {
		a, b := some(), some()
		if n := plainVersions(a, b); compareVersions(a, b) != n {
			t.Fatalf("%q and %q: %d, want %d", a, b, compareVersions(a, b), n)
		} else if n != 0 {
			differ++
		}
	}
	if differ < 100_000 {
		t.Errorf("only %d pairs differed", differ)
	}
}

// A cursor's key, which went through JSON, stands where it stood.
func TestKeysFromOutsideCompareAsBefore(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, by := range []string{"", "version", "-version,label.tier", "-score,virtualSite,-kubernetes", "alerts,-lastSeen,reason"} {
		o, err := ParseOrder(by)
		if err != nil {
			t.Fatal(err)
		}
		var keys []Key
		for i := range 60 {
			row := *rows[r.IntN(len(rows))]
			row.Name = fmt.Sprint("s", i)
			row.Versions = map[string]string{"agent": word(r, 4, "1", ".", "10", "-", "rc"), "kubernetes": word(r, 3, "v1", ".", "33")}
			keys = append(keys, o.Key(&row, now))
		}
		other, _ := ParseOrder(by) // that of the next page, which has met no version yet
		for i := range keys {
			var k Key
			if text, err := json.Marshal(keys[i]); err != nil || json.Unmarshal(text, &k) != nil || !other.Adopt(&k) {
				t.Fatalf("%s: %s, %v", by, text, err)
			}
			for j := range keys {
				if got, want := o.Compare(&k, &keys[j]), o.Compare(&keys[i], &keys[j]); got != want {
					t.Errorf("%q: %+v and %+v: %d, want %d", by, k, keys[j], got, want)
				}
			}
		}
	}
}

// plainText looks for text in each place by itself.
func plainText(r *Row, want string) bool {
	places := []string{r.Name, r.Address}
	if r.Maintenance != nil {
		places = append(places, r.Maintenance.Reason)
	}
	places = append(places, r.Alerts...)
	for _, x := range r.Reasons {
		places = append(places, x.Text, x.Signal)
	}
	for _, v := range r.Labels {
		places = append(places, v)
	}
	return slices.ContainsFunc(places, func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(want)) })
}

func TestFreeTextIsFoundWhereItStands(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	some := func(most int) string { return word(r, most, "a", "B", "É", "ß", "İ", "\n", " ", "\xff", "7 %") }
	found := 0
	for range 50_000 {
		row := &Row{Name: some(2), Address: some(2), Labels: map[string]string{"x": some(2), some(3): some(2)}}
		if r.IntN(4) == 0 {
			row.Maintenance, row.Alerts, row.Reasons = &Maintenance{Reason: some(2)}, []string{some(2)}, []Reason{{some(1), some(2)}}
		}
		text := strings.ReplaceAll(some(3), "\xff", "") // a query is UTF-8
		q, err := Parse(quote(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := plainText(row, text)
		for _, row.Searched = range []string{"", SearchedText(row)} {
			if q.Match(row, now) != want {
				t.Fatalf("%q in %+v: want %t", text, row, want)
			}
		}
		if want {
			found++
		}
	}
	if found < 5000 || found > 45_000 {
		t.Errorf("found %d of 50000", found)
	}
}

func TestRegularExpressionsMatchAsTheyDoAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	useful, matched := 0, 0
	for range 50_000 {
		text := word(r, 5, "a", "b", "ab", "(a|b)", "(ab)+", "(?i)", "b?", "a*", "[ab]", ".", "^", "$", "(?:ba){2}", "(?:ab){0,2}", "|", "(bb)", `\.`)
		re, err := regexp.Compile(text)
		if err != nil {
			continue // such as a* and a *
		}
		q, err := Parse("name~/" + text + "/")
		if err != nil || text == "" {
			continue
		}
		if literalOf(text) != "" {
			useful++
		}
		row := &Row{Name: word(r, 4, "a", "b", "A", "B", ".")}
		if want := re.MatchString(row.Name); q.Match(row, now) != want {
			t.Fatalf("%s of %q: want %t; it was to have %q", text, row.Name, want, literalOf(text))
		} else if want {
			matched++
		}
	}
	if useful < 5000 || matched < 5000 {
		t.Errorf("%d had a text that all have, %d matched", useful, matched)
	}
	for re, want := range map[string]string{"9$": "9", "^store-.*north": "store-", "(?i)store": "", "a|b": "", "x(abc)+y": "abc", "(abc)?y": "y", "(abc){0,3}y": "y"} {
		if got := literalOf(re); got != want {
			t.Errorf("%s: %q, want %q", re, got, want)
		}
	}
}
