package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster.dev/muster/internal/sitequery"
	"muster.dev/muster/internal/wire"
)

// siteFields is what the console says that sites can be asked for by; without it, what is known of any fleet.
func (g *Globals) siteFields(cmd *cobra.Command) wire.SiteFields {
	var out wire.SiteFields
	if a, err := g.api(); err == nil && a.get(cmd.Context(), wire.SiteFieldsPath, g.query(), &out) == nil {
		return out
	}
	for _, f := range sitequery.Fields {
		out.Fields = append(out.Fields, wire.SiteField{Name: f.Name, Aliases: f.Aliases, Kind: string(f.Kind), Values: f.Values, Keyed: f.Keyed})
	}
	return out
}

// columnNames are fields, and those with a key with the keys that there are.
func columnNames(known wire.SiteFields) []string {
	var out []string
	keys := map[string][]string{"measured": known.Measured}
	for _, k := range known.Labels {
		keys["label"] = append(keys["label"], k.Key)
	}
	for _, k := range known.Versions {
		keys["version"] = append(keys["version"], k.Key)
	}
	for _, f := range known.Fields {
		if !f.Keyed {
			out = append(out, f.Name)
			continue
		}
		for _, key := range keys[f.Name] {
			out = append(out, f.Name+"."+key)
		}
		if len(keys[f.Name]) == 0 {
			out = append(out, f.Name+".")
		}
	}
	return out
}

// completeColumns completes a list of columns with commas.
func (g *Globals) completeColumns(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	cut := strings.LastIndexByte(typed, ',') + 1
	if cut < len(typed) && typed[cut] == '-' {
		cut++
	}
	return starting(typed[:cut], typed[cut:], columnNames(g.siteFields(cmd))), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// starting are the words that begin as typed, each behind what is before it.
func starting(before, typed string, words []string) []string {
	var out []string
	for _, w := range words {
		if len(w) >= len(typed) && strings.EqualFold(w[:len(typed)], typed) {
			out = append(out, before+w)
		}
	}
	return out
}

var (
	lastWord  = regexp.MustCompile(`[^\s()"=,!<>~]*$`)
	fieldOf   = regexp.MustCompile(`([\w./-]+)\s*(?:=|!=)\s*$|([\w./-]+)\s+(?:not\s+)?in\s*\((?:[^()]*,)?\s*$`)
	needQuote = regexp.MustCompile(`[\s()"=,!<>~*]`)
)

// completeQuery completes the last word of a query: a field, or a value of the one before it.
func (g *Globals) completeQuery(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	if strings.Count(strings.ReplaceAll(typed, `\"`, ""), `"`)%2 == 1 {
		return nil, directive
	}
	known := g.siteFields(cmd)
	word := lastWord.FindString(typed)
	before := typed[:len(typed)-len(word)]
	m := fieldOf.FindStringSubmatch(before)
	if m == nil {
		names := columnNames(known)
		for _, k := range known.Labels { // a name that is no field is a label's key
			if !slices.Contains(names, k.Key) {
				names = append(names, k.Key)
			}
		}
		return starting(before, word, names), directive
	}
	var values []string
	for _, v := range valuesOf(known, m[1]+m[2]) {
		if needQuote.MatchString(v) {
			v = fmt.Sprintf("%q", v)
		}
		values = append(values, v)
	}
	return starting(before, word, values), directive
}

func valuesOf(known wire.SiteFields, field string) []string {
	find := func(keys []wire.SiteKey, key string) []string {
		for _, k := range keys {
			if k.Key == key {
				return k.Values
			}
		}
		return nil
	}
	for _, f := range known.Fields {
		if !f.Keyed && (strings.EqualFold(f.Name, field) || slices.ContainsFunc(f.Aliases, func(a string) bool { return strings.EqualFold(a, field) })) {
			if f.Kind == string(sitequery.Flag) {
				return []string{"true", "false"}
			}
			return f.Values
		}
	}
	switch before, key, _ := strings.Cut(field, "."); {
	case field == "version":
		return find(known.Versions, "agent")
	case before == "version":
		return find(known.Versions, key)
	case before == "label":
		return find(known.Labels, key)
	}
	return find(known.Labels, field)
}
