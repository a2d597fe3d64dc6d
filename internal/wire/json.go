package wire

import "encoding/json"

// AppendString appends s as json.Marshal writes it, at once where nothing in it is to be escaped.
func AppendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // of a string there is no error
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
