package console

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// maxLine is the longest line of an event, in bytes: a change of 10,000 sites has about 20 MB.
const maxLine = 64 << 20

// ReadEvents calls each with the name and data of every server-sent event, until the
// stream ends, each fails, or what comes is none. The data is valid until each returns.
func ReadEvents(r io.Reader, each func(name string, data []byte) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	var name string
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			if len(data) > 0 {
				if err := each(name, data); err != nil {
					return err
				}
			}
			name, data = "", data[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			if data = append(data, value...); len(data) > maxLine {
				return fmt.Errorf("an event of more than %d MiB", maxLine>>20)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream of events broke off: %w", err)
	}
	return io.EOF
}
