package source

import (
	"fmt"
	"slices"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// column makes a field of what each row has.
func column[R, V any](name string, rows []R, of func(*R) V) *data.Field {
	vs := make([]V, len(rows))
	for i := range rows {
		vs[i] = of(&rows[i])
	}
	return data.NewField(name, nil, vs)
}

// with sets how a field is shown.
func with(f *data.Field, c data.FieldConfig) *data.Field { return f.SetConfig(&c) }

func score(f *data.Field) *data.Field {
	zero, hundred := data.ConfFloat64(0), data.ConfFloat64(100)
	return with(f, data.FieldConfig{Min: &zero, Max: &hundred, Thresholds: &data.ThresholdsConfig{Mode: data.ThresholdsModeAbsolute, Steps: []data.Threshold{
		data.NewThreshold(0, "red", ""), data.NewThreshold(40, "orange", ""), data.NewThreshold(75.001, "green", "")}},
		Color: map[string]any{"mode": "thresholds"}})
}

func table(name string, fields ...*data.Field) *data.Frame {
	f := data.NewFrame(name, fields...)
	return f.SetMeta(&data.FrameMeta{Type: data.FrameTypeTable, TypeVersion: data.FrameTypeVersion{0, 1}, PreferredVisualization: data.VisTypeTable})
}

// notice tells people something about the whole answer.
func notice(f *data.Frame, severity data.NoticeSeverity, format string, args ...any) {
	if f.Meta == nil {
		f.Meta = &data.FrameMeta{}
	}
	f.Meta.Notices = append(f.Meta.Notices, data.Notice{Severity: severity, Text: fmt.Sprintf(format, args...)})
}

// cut says that there is more than was asked for.
func cut(f *data.Frame, got, total int) {
	if total > got {
		notice(f, data.NoticeSeverityWarning, "%d of %d: raise the limit, or ask for fewer", got, total)
	}
}

// timeOf is a time, or nothing.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func sortedKeys(ms ...map[string]string) []string {
	var out []string
	for _, m := range ms {
		for k := range m {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	slices.Sort(out)
	return out
}
