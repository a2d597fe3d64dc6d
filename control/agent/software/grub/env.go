package grub

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An environment block is 1024 bytes: a line that says what it is, NAME=VALUE lines in
// which a backslash stands before a backslash or a line's end of a value, lines that begin
// with '#', and '#' up to the end (GRUB manual, "Environment block";
// grub-core/lib/envblk.c). Comments are not kept.
const (
	blockSize = 1024
	signature = "# GRUB Environment Block\n"
)

// parse reads a block.
func parse(b []byte) (map[string]string, error) {
	if len(b) != blockSize || !bytes.HasPrefix(b, []byte(signature)) {
		return nil, fmt.Errorf("it is no GRUB environment block: want %d bytes that begin with %q; make one with grub-editenv FILE create", blockSize, signature[:len(signature)-1])
	}
	out := map[string]string{}
	for rest := string(b[len(signature):]); rest != ""; {
		if rest[0] == '#' {
			if _, after, ok := strings.Cut(rest, "\n"); ok {
				rest = after
				continue
			}
			break
		}
		var line strings.Builder
		i := 0
		for ; i < len(rest) && rest[i] != '\n'; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			line.WriteByte(rest[i])
		}
		if i == len(rest) {
			return nil, errors.New("a line of the GRUB environment block has no end")
		}
		rest = rest[i+1:]
		if name, value, ok := strings.Cut(line.String(), "="); ok && name != "" {
			out[name] = value
		}
	}
	return out, nil
}

// format makes a block, the names in order. What does not fit is an error.
func format(env map[string]string) ([]byte, error) {
	b := bytes.NewBufferString(signature)
	escape := strings.NewReplacer(`\`, `\\`, "\n", "\\\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\\\n#") {
			return nil, fmt.Errorf("%q is no name of a GRUB variable", name)
		}
		fmt.Fprintf(b, "%s=%s\n", name, escape.Replace(env[name]))
	}
	if b.Len() > blockSize {
		return nil, fmt.Errorf("the GRUB environment block has no room: %d bytes of %d", b.Len(), blockSize)
	}
	b.Write(bytes.Repeat([]byte("#"), blockSize-b.Len()))
	return b.Bytes(), nil
}
