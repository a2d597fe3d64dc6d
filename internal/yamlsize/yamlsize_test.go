package yamlsize

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for name, c := range map[string]struct {
		text string
		want string // of the error; "": none
	}{
		"none":                  {text: "a: [" + strings.Repeat("b, ", 1000) + "]"},
		"words that look alike": {text: "rules:\n- {verbs: ['*'], note: 'a & b'}\ncron: \"*/5 * * * *\"\n# &a *a " + long},
		"few":                   {text: "a: &a {b: c}\nd: *a\ne: *a\n"},
		"merged":                {text: "a: &a {b: c}\nd:\n  <<: *a\n  e: f\n"},
		"a long one, often":     {text: "a: &a " + long + "\nb: [" + strings.Repeat("*a, ", 1000) + "]", want: "comes to more than 65536 bytes"},
		"of each other":         {text: "a: &a [" + long[:100] + "]\nb: &b [" + strings.Repeat("*a, ", 99) + "]\nc: &c [" + strings.Repeat("*b, ", 99) + "]", want: "comes to more than"},
		"in a second document":  {text: "a: b\n---\na: &a " + long + "\nb: [" + strings.Repeat("*a, ", 1000) + "]", want: "comes to more than"},
		"as a key":              {text: "? &a " + long[:1000] + "\n: b\nc:\n- {*a : 1}\n" + strings.Repeat("- {*a : 1}\n", 1000), want: "comes to more than"},
		"of itself":             {text: "a: &a [b, *a]", want: "&a is a part of itself"},
		"broken":                {text: "a: [&b *", want: "is no YAML"},
		"broken after some":     {text: "a: &a " + long + "\nb: [*a, *a]\n---\n\tno: [", want: "is no YAML"},
	} {
		err := Check([]byte(c.text), 1<<16)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// What is let through does not come to much more than is allowed, as the API server and the
// console make JSON of it.
func FuzzCheck(f *testing.F) {
	f.Add("a: &a bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\nc: [*a, *a, *a]")
	f.Add("a: &a {b: &b [c, c]}\nd: [*a, *b]\n<<: *a")
	f.Add("? &a key\n: *a")
	f.Add("- &a\n- *a\n- !!binary &b aGVsbG8=\n- *b")
	const most = 4096
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > most || strings.Contains(text, "\n---") || Check([]byte(text), most) != nil {
			return
		}
		var v any
		if yaml.Unmarshal([]byte(text), &v) != nil {
			return
		}
		b, err := json.Marshal(v)
		if err == nil && len(b) > 16*most { // a character may be written as six bytes, a number as twenty
			t.Errorf("%d bytes of %q", len(b), text)
		}
	})
}
