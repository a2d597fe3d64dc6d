package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// ruleLoader gives the rule manager groups that are already parsed, whether they
// came from a file or from memory.
type ruleLoader struct {
	mu     sync.Mutex
	groups map[string]*rulefmt.RuleGroups
}

func newRuleLoader() *ruleLoader { return &ruleLoader{groups: map[string]*rulefmt.RuleGroups{}} }

// set parses all groups before it takes any, and returns their names.
func (l *ruleLoader) set(groups []RuleGroup) ([]string, error) {
	parsed := map[string]*rulefmt.RuleGroups{}
	var names []string
	for _, g := range groups {
		content := g.Content
		if content == nil {
			var err error
			if content, err = os.ReadFile(g.File); err != nil {
				return nil, fmt.Errorf("rules: %w", err)
			}
		}
		if parsed[g.File] != nil {
			return nil, fmt.Errorf("rules %s: named twice", g.File)
		}
		rg, errs := rulefmt.Parse(content, false, model.UTF8Validation)
		if len(errs) > 0 {
			return nil, fmt.Errorf("rules %s: %w", g.File, errors.Join(errs...))
		}
		parsed[g.File] = rg
		names = append(names, g.File)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups = parsed
	return names, nil
}

// Load implements rules.GroupLoader.
func (l *ruleLoader) Load(name string, _ bool, _ model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.groups[name]; g != nil {
		return g, nil
	}
	return nil, []error{fmt.Errorf("rules %s: not loaded", name)}
}

// Parse implements rules.GroupLoader.
func (l *ruleLoader) Parse(q string) (parser.Expr, error) { return parser.ParseExpr(q) }

// SetRules replaces all rule groups without a restart. A group that did not change
// keeps its state. After an error the old rules run on.
func (e *Engine) SetRules(groups []RuleGroup) error {
	files, err := e.loader.set(groups)
	if err != nil {
		return fmt.Errorf("engine %s: %w", e.opts.Name, err)
	}
	return e.updateRules(files)
}

func (e *Engine) updateRules(files []string) error {
	err := e.rules.Update(e.opts.EvaluationInterval, files, e.opts.ExternalLabels, e.opts.ExternalURL, nil)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}
