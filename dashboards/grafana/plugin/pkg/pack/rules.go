package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// plugin is what of plugin.json is looked at.
type plugin struct {
	ID, Type, Name, Executable string
	Backend                    bool
	Info                       struct {
		Author           struct{ Name string }
		Description      string
		Keywords         []string
		Logos            struct{ Small, Large string }
		Screenshots      []struct{ Name, Path string }
		Version, Updated string
	}
	Dependencies struct{ GrafanaDependency string }
}

var (
	version    = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	day        = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)
	dependency = regexp.MustCompile(`^>=\d+\.\d+\.\d+`)
	link       = regexp.MustCompile(`\[[^\]]+\]\(([^)\s]+)`)
	active     = regexp.MustCompile(`(?i)<script|<foreignObject|\son[a-z]+\s*=|href\s*=\s*["'](https?:|javascript:|//)`)
)

// rules are those of Grafana's plugin validator that can be looked at without a network and without a
// licence: each breach is said with the file. https://github.com/grafana/plugin-validator
func rules(dist string, p *plugin) error {
	var errs []error
	wrong := func(broken bool, file, what string, args ...any) {
		if broken {
			errs = append(errs, fmt.Errorf("%s: %s", file, fmt.Sprintf(what, args...)))
		}
	}
	i := p.Info
	wrong(!strings.HasSuffix(p.ID, "-"+p.Type) || strings.Count(p.ID, "-") < 1, "plugin.json", "id %q: want ORGANIZATION-NAME-%s", p.ID, p.Type)
	wrong(p.Name == "" || p.Name == p.ID, "plugin.json", "name %q: want one for people", p.Name)
	wrong(i.Author.Name == "", "plugin.json", "info.author.name is empty")
	wrong(i.Description == "", "plugin.json", "info.description is empty")
	wrong(len(i.Keywords) == 0, "plugin.json", "info.keywords are empty")
	wrong(!version.MatchString(i.Version), "plugin.json", "info.version %q: want one such as 1.2.3", i.Version)
	wrong(!day.MatchString(i.Updated), "plugin.json", "info.updated %q: want a day such as 2026-01-31", i.Updated)
	wrong(!dependency.MatchString(p.Dependencies.GrafanaDependency), "plugin.json", "dependencies.grafanaDependency %q: want one such as >=12.0.0", p.Dependencies.GrafanaDependency)
	wrong(p.Backend && !strings.HasPrefix(p.Executable, "gpx_"), "plugin.json", "executable %q: want gpx_NAME", p.Executable)
	for _, path := range append([]string{i.Logos.Small, i.Logos.Large}, paths(p)...) {
		b, err := os.ReadFile(filepath.Join(dist, path))
		wrong(!filepath.IsLocal(path) || err != nil, "plugin.json", "the picture %q is not in the folder", path)
		wrong(strings.HasSuffix(path, ".svg") && active.Match(b), path, "scripts, handlers and addresses of elsewhere are not for a picture")
	}
	readme, err := os.ReadFile(filepath.Join(dist, "README.md"))
	wrong(err != nil || len(readme) == 0, "README.md", "there is none")
	for _, m := range link.FindAllSubmatch(readme, -1) {
		to := string(m[1])
		wrong(!strings.HasPrefix(to, "https://") && !strings.HasPrefix(to, "#") && !strings.HasPrefix(to, "mailto:"), "README.md", "the link %s leads nowhere out of the catalog: begin it with https://", to)
	}
	for _, word := range []string{"yarn", "nodejs"} {
		wrong(strings.Contains(string(readme), word), "README.md", "%s is for developers: it is shown to those who install the plugin", word)
	}
	changes, err := os.ReadFile(filepath.Join(dist, "CHANGELOG.md"))
	wrong(err != nil, "CHANGELOG.md", "there is none")
	wrong(err == nil && !strings.Contains(string(changes), "\n## "+i.Version+"\n"), "CHANGELOG.md", "says nothing of %s", i.Version)
	return errors.Join(append(errs, strangers(dist))...)
}

func paths(p *plugin) (out []string) {
	for _, s := range p.Info.Screenshots {
		out = append(out, s.Path)
	}
	return out
}

// strangers are files that a plugin must not have.
func strangers(dist string) error {
	var errs []error
	err := filepath.WalkDir(dist, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dist, name)
		switch base := filepath.Base(rel); {
		case err != nil:
			return err
		case base == "plugin.json" && rel != base:
			errs = append(errs, fmt.Errorf("%s: a plugin in the plugin", rel))
		case base == "standalone.txt" || base == "pid.txt":
			errs = append(errs, fmt.Errorf("%s: of somebody who debugged it: remove it", rel))
		case d.Type()&fs.ModeSymlink != 0:
			errs = append(errs, fmt.Errorf("%s: a link, which zips don't carry everywhere", rel))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

func readPlugin(dist string) (*plugin, error) {
	b, err := os.ReadFile(filepath.Join(dist, "plugin.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: build the frontend first", err)
	}
	p := &plugin{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("plugin.json: %w", err)
	}
	return p, nil
}
