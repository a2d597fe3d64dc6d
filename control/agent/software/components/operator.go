package components

import (
	"fmt"
	"strings"
	"time"

	"muster.dev/muster/control/agent/software"
)

// Now has what is offered of a component begin at once (software.Machine.Now). Without a
// name it is the one that is offered something.
func (c *Components) Now(component string) error {
	return c.choose(component, func(m *software.Machine) error { return m.Now() })
}

// Defer puts what is offered off until then, as far as the fleet's operator allows it.
func (c *Components) Defer(component string, until time.Time) error {
	return c.choose(component, func(m *software.Machine) error { return m.Defer(until) })
}

// Cancel forgets what was said by Now or Defer.
func (c *Components) Cancel(component string) error {
	return c.choose(component, func(m *software.Machine) error { return m.Cancel() })
}

func (c *Components) choose(component string, say func(*software.Machine) error) error {
	var names []string
	var offered []*part
	for _, p := range c.parts {
		names = append(names, p.Name)
		s := p.machine.Status().Phase
		if p.Name == component || component == "" && (s == software.Available || s == software.Scheduled) {
			offered = append(offered, p)
		}
	}
	switch {
	case len(offered) == 1:
		err := say(offered[0].machine)
		offered[0].poke()
		return err
	case len(offered) > 1:
		return fmt.Errorf("more than one component is offered something: name one of %s", strings.Join(names, ", "))
	case component != "":
		return fmt.Errorf("no component %q is replaced here: want one of %s", component, strings.Join(names, ", "))
	}
	return fmt.Errorf("nothing is offered")
}
