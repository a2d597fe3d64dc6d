package sitequery

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"muster.dev/muster/internal/fleet"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func known(x float64) Number { return Number{x, true} }

// rows are three sites: one that is well, one with a full disk, one that was never seen.
var rows = []*Row{
	{Tenant: "acme", Name: "paris-07", Region: "eu-west", Regional: "eu-1", Address: "Rue de Rivoli, Paris", Placed: true, Reading: readings, Phase: fleet.PhaseOnline, Colour: fleet.Green, Score: known(97.5),
		Dimensions: [4]Number{known(100), known(95), known(100), known(95)}, Since: now.Add(-48 * time.Hour), LastSeen: now.Add(-5 * time.Second), Created: now.Add(-1000 * time.Hour),
		Labels: map[string]string{"region": "eu-west", "kind": "store", "muster.dev/system-os": "linux", "tier": "gold"}, Versions: map[string]string{"agent": "1.10.0", "os": "24.04", "kubernetes": "v1.33.4+k3s1"},
		VirtualSites: []string{"shared/all-eu", "shop/north"}, AlertsKnown: true},
	{Tenant: "acme", Name: "paris-08", Region: "eu-west", Regional: "eu-1", Phase: fleet.PhaseOnline, Colour: fleet.Red, Score: known(39), Policy: "strict",
		Dimensions: [4]Number{known(100), known(20), known(100), {}}, Since: now.Add(-10 * time.Minute), LastSeen: now.Add(-time.Minute), Created: now.Add(-24 * time.Hour),
		Labels: map[string]string{"region": "eu-west", "kind": "store"}, Versions: map[string]string{"agent": "1.4", "os": "22.04", "kubernetes": "v1.32.0"},
		VirtualSites: []string{"shared/all-eu"}, Reasons: []Reason{{"disk-used", "Disk /var is 97 % full on n1"}, {"pods-restarting", "3 pods restart"}},
		Alerts: []string{"critical/DiskFull", "warning/PodsRestart", "warning/Slow"}, AlertsKnown: true, Maintenance: &Maintenance{Reason: "new router"}},
	{Tenant: "zeta", Name: "lima", Phase: fleet.PhaseApproved, Colour: fleet.Grey, Created: now.Add(-time.Hour), Labels: map[string]string{"kind": "factory", "note": `say "hi"`}},
}

// readings are those of paris-07.
func readings(signal string) Number {
	v, ok := map[string]float64{"cpu-used": 81.26, "memory-available": 20, "packet-loss": 0.4}[signal]
	return Number{v, ok}
}

func matching(t *testing.T, query string) string {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var out []string
	for _, r := range rows {
		if q.Match(r, now) {
			out = append(out, r.Name)
		}
	}
	return strings.Join(out, " ")
}

func TestQueries(t *testing.T) {
	const all, seven, eight, lima = "paris-07 paris-08 lima", "paris-07", "paris-08", "lima"
	for query, want := range map[string]string{
		"":  all,
		" ": all,
		`kind=store version!=1.10 score<60 "disk"`: eight,
		"kind=store":                           "paris-07 paris-08",
		"label.kind=store":                     "paris-07 paris-08",
		"kind!=store":                          lima,
		`tier=""`:                              "paris-08 lima",
		"tier!=\"\"":                           seven,
		"muster.dev/system-os=linux":           seven,
		`note="say \"hi\""`:                    lima,
		"name=paris-*":                         "paris-07 paris-08",
		"name=*is*8":                           eight,
		`name="paris-*"`:                       "",
		"NAME=lima":                            lima,
		"name~PARIS":                           "paris-07 paris-08",
		"name!~paris":                          lima,
		`name~/^paris-0[78]$/`:                 "paris-07 paris-08",
		`name~/^(lima|paris-\d7)$/`:            "paris-07 lima",
		`address~/Rivoli\/x/`:                  "",
		"tenant=zeta":                          lima,
		"colour=red":                           eight,
		"color=RED":                            eight,
		"colour in (red, grey)":                "paris-08 lima",
		"colour not in (red,grey)":             seven,
		"NOT colour in (red,grey)":             seven,
		"phase=online":                         "paris-07 paris-08",
		"score>=39":                            "paris-07 paris-08",
		"score>39":                             seven,
		"score = 97.5":                         seven,
		"score=unknown":                        lima,
		"score!=unknown":                       "paris-07 paris-08",
		"score in (39, 40)":                    eight,
		"reliability<40":                       eight,
		"performance=unknown":                  "paris-08 lima",
		"since<1h":                             eight,
		"lastSeen>30s":                         "paris-08 lima",
		"lastSeen<=1m":                         "paris-07 paris-08",
		"lastseen=never":                       lima,
		"created<7d":                           "paris-08 lima",
		"created>2026-05-01":                   lima,
		"created<2026-05-01T00:00:00Z":         "paris-07 paris-08",
		"region=eu-west":                       "paris-07 paris-08",
		`regional=""`:                          lima,
		`policy=""`:                            "paris-07 lima",
		"virtualSite=all-eu":                   "paris-07 paris-08",
		"vs=shop/north":                        seven,
		"vs=shop/*":                            seven,
		"vs=nor*":                              seven,
		"virtualSite!=north":                   "paris-08 lima",
		`virtualSite=""`:                       lima,
		"version<1.5":                          eight,
		"version=1.4.0":                        eight,
		"version>1.9":                          seven,
		"version.os>=24.04":                    seven,
		"version.os in (22.04, 23.10)":         eight,
		`version=""`:                           lima,
		"kubernetes<1.33":                      eight,
		"k8s>=v1.33.4":                         seven,
		"kubernetes=v1.33.4":                   seven,
		"kubernetes~k3s":                       seven,
		"alerts>0":                             eight,
		"alerts=0":                             seven,
		"alerts=unknown":                       lima,
		"alerts.critical=1 alerts.warning>1":   eight,
		"alerts.info>0":                        "",
		"alert=DiskFull":                       eight,
		"alert~disk":                           eight,
		"signal=disk-used":                     eight,
		"signal!=disk-used":                    "paris-07 lima",
		`reason~"97 %"`:                        eight,
		"maintenance=true":                     eight,
		"maintenance!=yes":                     "paris-07 lima",
		`"DISK"`:                               eight,
		"disk":                                 eight,
		`"new router"`:                         eight,
		"factory":                              lima,
		"rivoli":                               seven,
		"paris-0":                              "paris-07 paris-08",
		"lima OR score<60":                     "paris-08 lima",
		"colour=red or colour=green name=*7":   "paris-07 paris-08",
		"(colour=red OR colour=green) name=*7": seven,
		"NOT (colour=red OR colour=green)":     lima,
		"not not colour=red":                   eight,
		"kind=store AND score<60":              eight,
		`"in" colour=grey`:                     "",
		"kind in (factory)":                    lima,
		`kind in ("store", "factory") tier=g*`: seven,
	} {
		if got := matching(t, query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for query, want := range map[string]string{
		"score<":                         `at character 7: score< needs a value; for none write score<""`,
		"score<abc":                      "at character 7: score is a number: want one, such as score<60, or unknown",
		"score":                          "at character 1: score needs an operator and a value, such as score<60; to look for the word, put it in quotes",
		"é score<x":                      "at character 9: score is a number: want one, such as score<60, or unknown",
		"score~5":                        "at character 1: score can't be compared with ~: want = != < <= > >= or in",
		"score<unknown":                  "at character 7: unknown is neither more nor less than anything; want = or != before it",
		"kind<5":                         "at character 1: kind can't be compared with <: want =, !=, ~, !~ or in; it is text",
		"colour=blue":                    `at character 8: "blue" is no colour: want green, orange, red, grey`,
		"colour<red":                     "at character 1: colour can't be compared with <: want =, != or in",
		"lastSeen=5m":                    "at character 1: lastSeen is compared with < <= > >= and an age such as 10m or 7d or a date such as 2026-01-31; = is for never",
		"lastSeen>soon":                  `at character 10: "soon" is no time: want an age such as 10m, 36h or 7d, or a date such as 2026-01-31 or 2026-01-31T12:00:00Z`,
		"maintenance=maybe":              "at character 13: want maintenance=true or maintenance=false",
		"maintenance":                    "at character 1: maintenance needs an operator and a value, such as maintenance=false; to look for the word, put it in quotes",
		`"disk`:                          `at character 1: the text has no closing "`,
		"(colour=red":                    "at character 1: there is no ) for this (",
		"colour=red)":                    "at character 11: there is no ( for this )",
		"()":                             `at character 2: want a term such as score<60 here, not ")"`,
		"<5":                             "at character 1: < needs a field before it, such as score<60",
		"a OR":                           "at character 5: a term is missing at the end",
		"OR a":                           "at character 1: OR stands between two terms; to look for the word, put it in quotes",
		"!a":                             "at character 1: a ! stands before = or ~; to turn a term round, write NOT before it",
		"name~/[/":                       "at character 6: not a regular expression: error parsing regexp: missing closing ]: `[`",
		"name~/a":                        "at character 6: the regular expression has no closing /; a text that begins with / needs quotes",
		"name in paris":                  "at character 1: name needs an operator and a value, such as name=paris-*; to look for the word, put it in quotes",
		"colour in (red green)":          "at character 16: want a comma or ) here; values with spaces need quotes",
		"colour in (red,":                "at character 16: want a value here, as in colour in (a, b)",
		"label=x":                        "at character 1: label needs a key, such as label.tier=gold",
		`"score"<5`:                      "at character 1: a field's name stands without quotes",
		"kind==x":                        `at character 6: want a value behind kind=, not "="; put text with it in quotes`,
		strings.Repeat("(", 21) + "a":    "at character 21: want at most 20 parentheses in each other",
		strings.Repeat("a ", 201):        "at character 401: want at most 200 terms",
		strings.Repeat("x", MaxLength+1): "at character 2001: the query has 2001 bytes, want at most 2000",
		"name~/" + strings.Repeat("x", 201) + "/": "at character 6: the regular expression has 201 bytes, want at most 200",
		"\x00":  `at character 1: '\x00' can't stand here; put text with it in quotes`,
		"\xff":  "at character 1: the query is not UTF-8 text",
		"ké=1":  `at character 1: "ké" is neither a field nor the key of a label; the fields are `,
		"kind=": `at character 6: kind= needs a value; for none write kind=""`,
	} {
		_, err := Parse(query)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), want) || want[len(want)-1] != ' ' && err.Error() != want {
			t.Errorf("%.60q: %v\nwant %s", query, err, want)
		}
	}
}

func TestWhatAQueryNames(t *testing.T) {
	q, err := Parse("(tier=a OR phase=Online) label.zone!=x alerts>0 tier!=b")
	if err != nil {
		t.Fatal(err)
	}
	if got := q.Labels(); !slices.Equal(got, []string{"tier", "zone"}) || !q.Uses(FieldPhase) || !q.Uses("alerts") || q.Uses("score") {
		t.Errorf("labels %v", got)
	}
}

// TestEqualsMeansTheValue: the term that a group offers means the group's sites, whatever
// the value is.
func TestEqualsMeansTheValue(t *testing.T) {
	for _, f := range Fields {
		name := f.Name
		if f.Keyed {
			name += ".note"
		}
		c, err := ParseColumn(name)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Grouped() {
			continue
		}
		for _, r := range rows {
			c.Groups(r, func(v string) {
				q, err := Parse(Equals(c, v))
				if err != nil {
					t.Errorf("%s of %q: %v", name, v, err)
				} else if !q.Match(r, now) {
					t.Errorf("%s does not mean %s, which has %q", Equals(c, v), r.Name, v)
				}
			})
		}
	}
	label, _ := ParseColumn("note")
	for _, v := range []string{`a*`, `x"y\z`, "a b", "(", "/x/", "", "OR", "über"} {
		q, err := Parse(Equals(label, v))
		if err != nil {
			t.Fatalf("%q: %v", v, err)
		}
		for have, want := range map[string]bool{v: true, "ab": false, "abc": false} {
			if q.Match(&Row{Labels: map[string]string{"note": have}}, now) != want {
				t.Errorf("%s: %q: want %t", Equals(label, v), have, want)
			}
		}
	}
}

// TestEqualsOfAVersion: versions that compare as equal are groups of their own all the same.
func TestEqualsOfAVersion(t *testing.T) {
	c, _ := ParseColumn("kubernetes")
	all := []string{"v1.33.4", "v1.33.4+k3s1", "1.33.4", "v1.33.4.0", "", "1.*"}
	for _, v := range all {
		q, err := Parse(Equals(c, v))
		if err != nil {
			t.Fatal(err)
		}
		for _, have := range all {
			if q.Match(&Row{Versions: map[string]string{"kubernetes": have}}, now) != (have == v) {
				t.Errorf("%s: %q", Equals(c, v), have)
			}
		}
	}
	for query, want := range map[string]bool{"kubernetes=1.33.4": true, `kubernetes="1.33.4"`: false, `kubernetes in ("1.33.4", v1)`: false, `kubernetes in ("v1.33.4+k3s1")`: true, `kubernetes!="1.33.4"`: true} {
		if q, err := Parse(query); err != nil || q.Match(rows[0], now) != want {
			t.Errorf("%s: %v, want %t", query, err, want)
		}
	}
}

func TestExamplesOfFieldsParse(t *testing.T) {
	for _, f := range Fields {
		if _, err := Parse(f.Example); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func TestOrder(t *testing.T) {
	for text, want := range map[string]string{
		"":              "lima paris-07 paris-08",
		"score":         "paris-08 paris-07 lima",
		"-score":        "paris-07 paris-08 lima", // what is unknown comes last either way
		"version":       "paris-08 paris-07 lima",
		"-version":      "paris-07 paris-08 lima",
		"-alerts":       "paris-08 paris-07 lima",
		"-lastSeen":     "paris-07 paris-08 lima",
		"-created":      "lima paris-08 paris-07",
		"kind,-score":   "lima paris-07 paris-08",
		"-kind,score":   "paris-08 paris-07 lima",
		"colour":        "paris-07 paris-08 lima",
		"-maintenance":  "paris-08 lima paris-07",
		"-virtualSite":  "paris-07 paris-08 lima",
		"-tenant,-name": "lima paris-08 paris-07",
	} {
		o, err := ParseOrder(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		sorted := slices.Clone(rows)
		slices.SortFunc(sorted, func(a, b *Row) int {
			x, y := o.Key(a, now), o.Key(b, now)
			return o.Compare(&x, &y)
		})
		var got []string
		for _, r := range sorted {
			got = append(got, r.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", text, got, want)
		}
	}
	for _, bad := range []string{"a,b,c,d", "score,", "label", "é"} {
		if _, err := ParseOrder(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestVersions(t *testing.T) {
	rising := []string{"0.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.4", "1.4.1", "1.9", "1.10.0", "2", "24.04", "stable"}
	for i, a := range rising {
		for j, b := range rising {
			if n := compareVersions(a, b); n < 0 != (i < j) || n > 0 != (i > j) {
				t.Errorf("%s and %s: %d", a, b, n)
			}
		}
	}
	for _, same := range [][2]string{{"v1.4", "1.4"}, {"1.4.0", "1.4"}, {"1.33.4+k3s1", "v1.33.4"}, {"1.04", "1.4"}} {
		if compareVersions(same[0], same[1]) != 0 {
			t.Errorf("%v differ", same)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, field := range Fields {
		f.Add(field.Example)
	}
	f.Add(`(a OR NOT b) AND c not in (d,"e\"") name~/x\/y/ lastSeen>1d12h "q\\" ~ !~ /`)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) || e.at < 1 || e.Detail == "" {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		for _, r := range rows {
			q.Match(r, now)
		}
	})
}

func FuzzVersions(f *testing.F) {
	f.Add("1.4.0", "1.4", "v1.4-rc1+x")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if compareVersions(a, b) != -compareVersions(b, a) {
			t.Errorf("%q and %q depend on who is asked first", a, b)
		}
		if compareVersions(a, b) < 0 && compareVersions(b, c) < 0 && compareVersions(a, c) >= 0 {
			t.Errorf("%q < %q < %q, but not the first and the last", a, b, c)
		}
	})
}

// TestTheGuideHasEveryField: its table is that of Fields, row for row.
func TestTheGuideHasEveryField(t *testing.T) {
	guide, err := os.ReadFile("../../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Fields {
		row := fieldRow(&f)
		if !strings.Contains(string(guide), "\n"+row+"\n") {
			t.Errorf("docs/inventory.md lacks this row:\n%s", row)
		}
	}
	if have := strings.Count(string(guide), " | text | ") + strings.Count(string(guide), " | choice | ") + strings.Count(string(guide), " | list | ") +
		strings.Count(string(guide), " | number | ") + strings.Count(string(guide), " | time | ") + strings.Count(string(guide), " | version | ") + strings.Count(string(guide), " | flag | "); have != len(Fields) {
		t.Errorf("docs/inventory.md has %d fields, there are %d", have, len(Fields))
	}
}

func fieldRow(f *Field) string {
	name, also, kind := f.Name, "", string(f.Kind)
	if f.Keyed {
		name += ".KEY"
	}
	if len(f.Aliases) > 0 {
		also = "`" + strings.Join(f.Aliases, "`, `") + "`"
	}
	doc := f.Doc
	if len(f.Values) > 0 {
		doc += " One of " + strings.Join(f.Values, ", ") + "."
	}
	return "| `" + name + "` | " + also + " | " + kind + " | " + doc + " | `" + f.Example + "` |"
}
