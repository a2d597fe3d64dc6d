package v1alpha1

import (
	"encoding/json"
	"errors"
)

// FieldNames are fields of a line: one is written as text, several as a list.
type FieldNames []string

// UnmarshalJSON reads either.
func (f *FieldNames) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*f = nil
		if one != "" {
			*f = FieldNames{one}
		}
		return nil
	}
	var several []string
	if err := json.Unmarshal(b, &several); err != nil {
		return errors.New("want a field, or a list of fields")
	}
	*f = several
	return nil
}

// MarshalJSON writes one field as text.
func (f FieldNames) MarshalJSON() ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal([]string(f))
}
