// Command docsgen writes docs/reference from what is the source of each fact: the
// CRDs for the API, the table of kinds, the annotated sample for the configuration file. It is run by
// `make generate`; a difference to what is checked in fails `make check`.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"muster.dev/muster/cmd/internal/config"
	"muster.dev/muster/control/api/kinds"
)

//go:generate go run .

const root = "../../.."

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docsgen:", err)
		os.Exit(1)
	}
}

func run() error {
	api, short, err := apiReference(filepath.Join(root, "control/api/crds"))
	if err != nil {
		return err
	}
	out := filepath.Join(root, "docs/reference")
	if err := os.WriteFile(filepath.Join(out, "api.md"), api, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "kinds.md"), kindsReference(short), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "config.md"), configReference(config.Sample), 0o644)
}

// kindsReference is the table of kinds; short are their short names.
func kindsReference(short map[string]string) []byte {
	var out bytes.Buffer
	out.WriteString("# Kinds\n\nGenerated from `control/api/kinds` and the CRDs; do not edit. What the fields of each mean: [API reference](api.md).\n\n" +
		"Tenants' users write or read as their role in the tenant says. Control reads and writes all kinds; of Muster's other roles those named here watch one, or write its status.\n\n" +
		"| kind | short | stands in | administrators | editors | viewers | watched by | status by | checked beyond its schema |\n|---|---|---|---|---|---|---|---|---|\n")
	access := map[kinds.Access]string{kinds.None: "-", kinds.Read: "read", kinds.Write: "write"}
	for _, k := range kinds.All {
		checked := "yes"
		if reflect.ValueOf(k.Check).Pointer() == reflect.ValueOf(kinds.Unchecked).Pointer() {
			checked = "no"
		}
		fmt.Fprintf(&out, "| [%s](api.md#%s) | %s | %s | %s | %s | %s | %s | %s | %s |\n", k.Name, strings.ToLower(k.Name), short[k.Name], k.Scope,
			access[k.Admin], access[k.Edit], access[k.View], strings.Join(append([]string{"control"}, k.Readers...), ", "), strings.Join(append([]string{"control"}, k.StatusBy...), ", "), checked)
	}
	return out.Bytes()
}

// configReference turns the annotated sample into a table: a comment block
// describes the field that follows it.
func configReference(sample []byte) []byte {
	var out bytes.Buffer
	out.WriteString("# Configuration reference\n\nGenerated from the annotated sample (`muster config sample`); do not edit.\n" +
		"`muster config check FILE` checks a file without starting anything. Unknown fields are errors.\n\n| field | default | meaning |\n|---|---|---|\n")
	type level struct {
		indent int
		name   string
	}
	var path []level
	var comment []string
	for line := range strings.Lines(string(sample)) {
		line = strings.TrimRight(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		text := strings.TrimSpace(line)
		item := strings.HasPrefix(text, "- ")
		if item {
			indent, text = indent+2, strings.TrimPrefix(text, "- ")
		}
		switch {
		case text == "":
			comment = nil
			continue
		case strings.HasPrefix(text, "#"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(text, "#")))
			continue
		}
		key, value, _ := strings.Cut(text, ":")
		for len(path) > 0 && path[len(path)-1].indent >= indent {
			path = path[:len(path)-1]
		}
		var names []string
		for _, l := range path {
			names = append(names, l.name)
		}
		name := strings.Join(append(names, key), ".")
		value = strings.TrimSpace(value)
		if value == "" {
			path = append(path, level{indent, key})
			if key == "regionals" {
				path[len(path)-1].name = "regionals[]"
			}
		} else {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, value, strings.Join(comment, " "))
		comment = nil
	}
	return out.Bytes()
}

// apiReference is the reference of the CRDs in a folder, and the kinds' short names.
func apiReference(dir string) ([]byte, map[string]string, error) {
	shorts := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, nil, fmt.Errorf("no CRDs in %s (%w)", dir, err)
	}
	var out bytes.Buffer
	out.WriteString("# API reference\n\nGenerated from the CRDs; do not edit. Group `muster.dev`, version `v1alpha1`.\n`kubectl explain sites.spec --recursive` shows the same in a terminal.\n")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &crd); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f, err)
		}
		schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		short := ""
		if s := crd.Spec.Names.ShortNames; len(s) > 0 {
			names := "`" + strings.Join(s, "`, `") + "`"
			short, shorts[crd.Spec.Names.Kind] = ", short "+names, names
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s\n\n%s%s.\n\n| field | type | meaning |\n|---|---|---|\n", crd.Spec.Names.Kind, schema.Description, crd.Spec.Scope, short)
		for _, part := range []string{"spec", "status"} {
			if p, ok := schema.Properties[part]; ok {
				fields(&out, part, p)
			}
		}
		if len(schema.XValidations) > 0 {
			out.WriteString("\nRules:\n")
			for _, r := range schema.XValidations {
				fmt.Fprintf(&out, "- %s\n", r.Message)
			}
		}
	}
	return out.Bytes(), shorts, nil
}

func fields(out *bytes.Buffer, path string, p apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		f := p.Properties[name]
		full, typ := path+"."+name, f.Type
		inner := f
		if f.XIntOrString {
			typ = "quantity"
		}
		if f.Type == "array" && f.Items != nil && f.Items.Schema != nil {
			inner, full, typ = *f.Items.Schema, full+"[]", "list of "+f.Items.Schema.Type
		}
		if f.AdditionalProperties != nil {
			typ = "map"
		}
		if slices.Contains(p.Required, name) {
			typ += ", required"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", full, typ, strings.ReplaceAll(meaning(f), "|", "\\|"))
		// Conditions and label selectors are Kubernetes' own and known.
		if name != "conditions" && name != "siteSelector" {
			fields(out, full, inner)
		}
	}
}

func meaning(f apiextensionsv1.JSONSchemaProps) string {
	parts := []string{strings.Join(strings.Fields(f.Description), " ")}
	if len(f.Enum) > 0 {
		var vals []string
		for _, e := range f.Enum {
			vals = append(vals, strings.Trim(string(e.Raw), `"`))
		}
		parts = append(parts, "One of: "+strings.Join(vals, ", ")+".")
	}
	if f.Minimum != nil {
		parts = append(parts, fmt.Sprintf("At least %v.", *f.Minimum))
	}
	if f.Maximum != nil {
		parts = append(parts, fmt.Sprintf("At most %v.", int64(*f.Maximum)))
	}
	if f.Pattern != "" {
		parts = append(parts, "Matches `"+f.Pattern+"`.")
	}
	if f.Default != nil {
		parts = append(parts, "Default "+string(f.Default.Raw)+".")
	}
	for _, r := range f.XValidations {
		parts = append(parts, "Rule: "+r.Message+".")
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}
