package logrule

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/internal/logquery"
)

// Together are the fields that lines are told apart by for aggregation_key alone: those of it that
// are not in query_key.
func Together(r v1alpha1.LogRule) []Field {
	var out []Field
	for _, name := range r.AggregationKey {
		f, err := ParseField(name)
		same := func(of string) bool {
			k, err := ParseField(of)
			return err == nil && k.Name == f.Name
		}
		if err == nil && !slices.ContainsFunc(r.QueryKey, same) {
			out = append(out, f)
		}
	}
	return out
}

// labelling checks fields whose values, or names, an alert shows.
func (c *checker) labelling(option string, names []string) {
	seen, byLabel := map[string]string{}, map[string]string{}
	for i, name := range names {
		at := c.at.Child(option).Index(i)
		f, err := ParseField(name)
		if err != nil {
			c.errs = append(c.errs, field.Invalid(at, name, err.Error()))
			continue
		}
		_, ofRule := c.r.Labels[f.Label]
		switch other, twice := seen[f.Name]; {
		case twice:
			c.errs = append(c.errs, field.Invalid(at, name, fmt.Sprintf("the same field as %s; remove one", other)))
		case option == "include" && byLabel[f.Label] != "":
			c.errs = append(c.errs, field.Invalid(at, name, fmt.Sprintf("is $fields.%s in annotations, as %s is; remove one", f.Label, byLabel[f.Label])))
		case option == "top_count_keys" || option == "include": // makes no labels
		case slices.Contains(reserved, f.Label):
			c.errs = append(c.errs, field.Invalid(at, name, fmt.Sprintf("becomes the label %s, which every alert has already; remove it", f.Label)))
		case byLabel[f.Label] != "":
			c.errs = append(c.errs, field.Invalid(at, name, fmt.Sprintf("becomes the label %s, as %s does; remove one", f.Label, byLabel[f.Label])))
		case ofRule:
			c.errs = append(c.errs, field.Invalid(at, name, fmt.Sprintf("becomes the label %s, which labels sets too; remove one", f.Label)))
		}
		seen[f.Name], byLabel[f.Label] = name, name
	}
}

// combinations checks the options that hold several fields, or lists of them.
func (c *checker) combinations() {
	list := func(at *field.Path, names v1alpha1.FieldNames) {
		if len(names) == 0 {
			c.errs = append(c.errs, field.Required(at, "a field is wanted"))
		}
		for i, name := range names {
			if _, err := ParseField(name); err != nil {
				c.errs = append(c.errs, field.Invalid(at, name, err.Error()))
			}
			if len(name) > 256 {
				c.errs = append(c.errs, field.TooLong(at, name, 256))
			}
			if slices.Contains(names[:i], name) {
				c.errs = append(c.errs, field.Duplicate(at, name))
			}
		}
	}
	most := len(c.r.CompareKey)
	if most > 0 {
		list(c.at.Child("compare_key"), c.r.CompareKey)
		if most > 1 && !TypeOf(c.r.Type).ComparesSeveral {
			c.errs = append(c.errs, field.Forbidden(c.at.Child("compare_key"), "type "+c.r.Type+" compares one field; only change looks at several"))
		}
	}
	if n := len(c.r.Fields); n > 5 {
		c.errs = append(c.errs, field.TooMany(c.at.Child("fields"), n, 5))
	}
	for i, names := range c.r.Fields {
		at := c.at.Child("fields").Index(i)
		list(at, names)
		most = max(most, len(names))
		if slices.ContainsFunc(c.r.Fields[:i], func(other v1alpha1.FieldNames) bool { return slices.Equal(other, names) }) {
			c.errs = append(c.errs, field.Duplicate(at, names))
		}
	}
	together := Together(c.r)
	if n := 1 + len(c.r.QueryKey) + len(together) + most; n > logquery.MaxGroupBy {
		c.errs = append(c.errs, field.Forbidden(c.at, fmt.Sprintf("lines are told apart by at most %d fields, and query_key, aggregation_key, the fields of the type and the site make %d; remove some", logquery.MaxGroupBy, n)))
	}
	at := c.at.Child("aggregation_key")
	switch {
	case len(c.r.AggregationKey) > 0 && c.r.Aggregation == nil:
		c.errs = append(c.errs, field.Required(c.at.Child("aggregation"), "aggregation_key says what is gathered apart, aggregation for how long"))
	case len(c.r.AggregationKey) > 0 && c.r.MinCardinality != nil:
		c.errs = append(c.errs, field.Forbidden(at, "too few values are not gathered, but told as soon and for as long as they are missing; make min_cardinality a rule of its own"))
	case len(together) > 0 && !TypeOf(c.r.Type).ByLine:
		c.errs = append(c.errs, field.Forbidden(at, fmt.Sprintf("type %s counts lines of different %s together; add it to query_key", c.r.Type, together[0].Name)))
	}
	if c.r.TopCountNumber != 0 && len(c.r.TopCountKeys) == 0 {
		c.errs = append(c.errs, field.Required(c.at.Child("top_count_keys"), "top_count_number is how many values of each are told"))
	}
	if c.r.TopCountNumber > 20 {
		c.invalid("top_count_number", c.r.TopCountNumber, "want at most 20")
	}
}
