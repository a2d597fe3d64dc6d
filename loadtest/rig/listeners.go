package rig

import (
	"fmt"
	"net"
	"strings"

	"go.yaml.in/yaml/v3"
)

// listeners are those of one Muster, each on a free port of its own, so that a run goes beside
// another fleet. Which there are its annotated sample says, so a role that is new is there too.
type listeners struct {
	conf *yaml.Node // the product's configuration: the listeners of its sample, and nothing else
	// roles in the order of the sample, and where each serves metrics and profiles.
	roles []string
	ops   map[string]string
	addr  map[string]string // all of them, such as console.listen

	held []net.Listener // until all ports are known, so that they differ
}

// listenersOf finds the listeners of a sample, and a port for each.
func listenersOf(sample []byte) (*listeners, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(sample, &doc); err != nil {
		return nil, fmt.Errorf("muster config sample: %w", err)
	}
	l := &listeners{ops: map[string]string{}, addr: map[string]string{}}
	defer func() {
		for _, ln := range l.held {
			_ = ln.Close()
		}
	}()
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("muster config sample: it has no fields")
	}
	var err error
	if l.conf, err = l.section(doc.Content[0], ""); err != nil {
		return nil, err
	}
	for i := 0; i < len(l.conf.Content); i += 2 {
		role, ops := l.conf.Content[i].Value, "opsListen"
		if role == "regionals" {
			role, ops = "regional", "queryListen"
		}
		addr := l.addr[l.conf.Content[i].Value+"."+ops]
		if addr == "" {
			return nil, fmt.Errorf("muster config sample: %s has no %s", role, ops)
		}
		l.roles, l.ops[role] = append(l.roles, role), addr
	}
	return l, nil
}

// section is what of a section is a listener, with another port; nil if nothing is. Of a list it is
// the first entry.
func (l *listeners) section(n *yaml.Node, path string) (*yaml.Node, error) {
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag}
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		first, err := l.section(n.Content[0], path)
		if first == nil || err != nil {
			return nil, err
		}
		out.Content = append(out.Content, first)
		return out, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		var kept *yaml.Node
		var err error
		switch {
		case strings.HasSuffix(strings.ToLower(key.Value), "listen") && value.Value != "":
			kept, err = l.freePort(at)
		default:
			kept, err = l.section(value, at)
		}
		if err != nil {
			return nil, err
		}
		if kept != nil {
			out.Content = append(out.Content, text(key.Value), kept)
		}
	}
	if len(out.Content) == 0 {
		return nil, nil
	}
	return out, nil
}

func (l *listeners) freePort(at string) (*yaml.Node, error) {
	if at == "regionals.logs.forwardListen" { // no site here forwards logs of other machines
		return text(""), nil
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find free ports: %w", err)
	}
	l.held = append(l.held, ln)
	l.addr[at] = ln.Addr().String()
	return text(l.addr[at]), nil
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// config is the product's configuration file: defaults but for the ports, where sites' software
// lies, and the Cortex outside; neither is there if it is empty.
func (l *listeners) config(repository, cortex string) ([]byte, error) {
	var conf map[string]any
	if err := l.conf.Decode(&conf); err != nil {
		return nil, err
	}
	if regionals, ok := conf["regionals"].([]any); ok && len(regionals) > 0 {
		if first, ok := regionals[0].(map[string]any); ok {
			first["name"] = regionalName
		}
	}
	if control, ok := conf["control"].(map[string]any); ok && repository != "" {
		control["software"] = map[string]any{"dir": repository}
	}
	if aggregator, ok := conf["aggregator"].(map[string]any); ok && cortex != "" {
		if embedded, ok := aggregator["cortex"].(map[string]any); ok {
			embedded["url"] = cortex
		}
	}
	return yaml.Marshal(conf)
}
