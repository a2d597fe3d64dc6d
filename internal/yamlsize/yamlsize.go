// Package yamlsize bounds what a YAML text of somebody else comes to. A text may name a part of
// itself any number of times, at three bytes a time, and what makes JSON of it writes that part
// out each time: three megabytes become hundreds of gigabytes. Decoders count how often a text
// names its parts, and not how long they are.
package yamlsize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Check refuses a text that comes to more than most bytes when what it names is written out.
// How long a text without such names is, and what it says, is not its business.
func Check(text []byte, most int) error {
	if !bytes.ContainsRune(text, '*') || !bytes.ContainsRune(text, '&') {
		return nil
	}
	sizes := sizes{}
	all := 0
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		n, err := sizes.of(&doc)
		if err != nil {
			return err
		}
		if all += n; sizes.aliases && all > most {
			return fmt.Errorf("comes to more than %d bytes when its aliases (*name) are written out; write them out yourself, or name less", most)
		}
	}
}

// sizes are those of the parts that have been measured.
type sizes struct {
	aliases bool
	known   map[*yaml.Node]int // of what is named; 0 while it is being measured
}

const huge = 1 << 40

func (s *sizes) of(n *yaml.Node) (int, error) {
	if n.Kind == yaml.AliasNode {
		s.aliases = true
		n = n.Alias
	}
	if n.Anchor != "" {
		if size, ok := s.known[n]; ok && size == 0 {
			return 0, fmt.Errorf("the part &%.100s is a part of itself", n.Anchor)
		} else if ok {
			return size, nil
		}
		if s.known == nil {
			s.known = map[*yaml.Node]int{}
		}
		s.known[n] = 0
	}
	size := len(n.Value) + 3 // quotes and a comma
	for _, part := range n.Content {
		m, err := s.of(part)
		if err != nil {
			return 0, err
		}
		size = min(size+m, huge)
	}
	if n.Anchor != "" {
		s.known[n] = size
	}
	return size, nil
}
