package hostconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"muster.dev/muster/internal/atomicfile"
	"muster.dev/muster/internal/disk"
	"muster.dev/muster/internal/hostconfig"
)

// apply makes the host have the settings, and of what it was given before only them. What is
// so already is left alone, and so are the programs that would load it.
func (h *Host) apply(ctx context.Context, s *hostconfig.Settings) error {
	for _, sec := range h.sections(s) {
		err := h.remember(&sec)
		if err == nil && sec.dropIn != "" {
			err = h.applyValues(ctx, &sec)
		} else if err == nil {
			err = h.applyFiles(ctx, &sec)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sec.name, err)
		}
	}
	return nil
}

// remember writes down what is there before the section touches it.
func (h *Host) remember(sec *section) error {
	if sec.needs != nil {
		if err := sec.needs(); err != nil {
			return err
		}
	}
	paths := slices.Sorted(maps.Keys(sec.files))
	if len(sec.values) > 0 {
		paths = append(paths, sec.dropIn)
	}
	changed := false
	for _, path := range paths {
		if _, known := h.state.Files[path]; known {
			continue
		}
		was, err := h.lookAt(path)
		if err != nil {
			return err
		}
		if h.state.Files == nil {
			h.state.Files = map[string]before{}
		}
		h.state.Files[path], changed = was, true
	}
	for _, v := range sec.values {
		if _, known := h.state.Values[v.path]; known {
			continue
		}
		was, err := h.kernel(v.path)
		if err != nil {
			return fmt.Errorf("%s: %w", v.label, err)
		}
		if h.state.Values == nil {
			h.state.Values = map[string]string{}
		}
		h.state.Values[v.path], changed = was, true
	}
	if !changed {
		return nil
	}
	return h.save()
}

// lookAt is a file as it is now. Of /etc/hosts, what is not ours stays in its place, and is
// not kept.
func (h *Host) lookAt(path string) (before, error) {
	fi, err := os.Lstat(h.at(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return before{}, nil
	case err != nil:
		return before{}, err
	case !fi.Mode().IsRegular():
		return before{}, fmt.Errorf("/%s is no regular file (%s), and would be one", path, fi.Mode().Type())
	case fi.Size() > maxBefore:
		return before{}, fmt.Errorf("/%s has %d bytes, and the limit is %d", path, fi.Size(), maxBefore)
	}
	was := before{There: true, Mode: fi.Mode().Perm()}
	if path != hostsFile {
		was.Body, err = os.ReadFile(h.at(path))
	}
	return was, err
}

// forget drops what was put back.
func (h *Host) forget(paths ...string) error {
	if len(paths) == 0 {
		return nil
	}
	for _, p := range paths {
		delete(h.state.Files, p)
		delete(h.state.Values, p)
	}
	return h.save()
}

// lost are the section's values that are wanted no more, as they were before.
func (h *Host) lost(sec *section) []value {
	var out []value
	for _, path := range slices.Sorted(maps.Keys(h.state.Values)) {
		if sec.owns(path) && !slices.ContainsFunc(sec.values, func(v value) bool { return v.path == path }) {
			out = append(out, former(path, h.state.Values[path]))
		}
	}
	return out
}

// applyValues has the kernel take the wanted values, and take back those that are wanted no
// more: these stand in the file, too, until they are loaded.
func (h *Host) applyValues(ctx context.Context, sec *section) error {
	lost := h.lost(sec)
	all := slices.Concat(sec.values, lost)
	if len(all) == 0 && !h.known(sec.dropIn) {
		return nil
	}
	if slices.ContainsFunc(all, func(v value) bool { now, err := h.kernel(v.path); return err != nil || now != v.normal() }) {
		if err := h.write(sec.dropIn, linesOf(all)); err != nil {
			return err
		}
		if err := h.o.Run(ctx, sec.load...); err != nil {
			return err
		}
		for _, v := range all {
			if now, err := h.kernel(v.path); err != nil || now != v.normal() {
				return fmt.Errorf("%s: the kernel has %q and not %q, which it was given (%w)", v.label, now, v.want, errors.Join(errNotTaken, err))
			}
		}
	}
	var gone []string
	for _, v := range lost {
		gone = append(gone, v.path)
	}
	if len(sec.values) > 0 {
		if err := h.write(sec.dropIn, linesOf(sec.values)); err != nil {
			return err
		}
	} else {
		if err := h.putBack(sec.dropIn); err != nil {
			return err
		}
		gone = append(gone, sec.dropIn)
	}
	return h.forget(gone...)
}

var errNotTaken = errors.New("another file sets it too, or there is no room for it: hugepages want memory in one piece, which a restart of the machine gives")

func (v value) normal() string { return strings.Join(strings.Fields(v.want), " ") }

func linesOf(values []value) []byte {
	var b bytes.Buffer
	b.WriteString(header)
	for _, v := range values {
		b.WriteString(v.line(v.want))
	}
	return b.Bytes()
}

func (h *Host) known(path string) bool {
	_, ok := h.state.Files[path]
	return ok
}

// gone are the section's files that are wanted no more.
func (h *Host) gone(sec *section) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(h.state.Files)) {
		if sec.owns(path) && sec.files[path] == nil && path != sec.dropIn {
			out = append(out, path)
		}
	}
	return out
}

// applyFiles writes the section's files, and has them loaded if one is another.
func (h *Host) applyFiles(ctx context.Context, sec *section) error {
	gone := h.gone(sec)
	var write []string
	for _, path := range slices.Sorted(maps.Keys(sec.files)) {
		if now, want, err := h.compare(path, sec.files[path]); err != nil {
			return err
		} else if !bytes.Equal(now, want) {
			write = append(write, path)
		}
	}
	if len(gone)+len(write) == 0 && !h.state.Pending[sec.name] {
		return nil
	}
	if h.state.Pending == nil {
		h.state.Pending = map[string]bool{}
	}
	h.state.Pending[sec.name] = true
	if err := h.save(); err != nil {
		return err
	}
	for _, path := range write {
		_, want, err := h.compare(path, sec.files[path])
		if err == nil {
			err = h.write(path, want)
		}
		if err != nil {
			return err
		}
	}
	for _, path := range gone {
		if err := h.putBack(path); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{sec.check, sec.load} {
		if len(argv) > 0 {
			if err := h.o.Run(ctx, argv...); err != nil {
				return err
			}
		}
	}
	delete(h.state.Pending, sec.name)
	if len(gone) == 0 {
		return h.save()
	}
	return h.forget(gone...)
}

// compare returns a file as it is, nil if there is none, and as it shall be.
func (h *Host) compare(path string, want []byte) (now, then []byte, err error) {
	now, err = os.ReadFile(h.at(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if path != hostsFile {
		return now, want, nil
	}
	rest, block := withoutBlock(now)
	if bytes.Equal(block, want) { // wherever in the file it stands
		return now, now, nil
	}
	return now, slices.Concat(rest, want), nil
}

// write replaces a file. It has the mode that it had, and else all may read it.
func (h *Host) write(path string, body []byte) error {
	name := h.at(path)
	if now, err := os.ReadFile(name); err == nil && bytes.Equal(now, body) {
		return nil
	}
	mode := fs.FileMode(0o644)
	if path == hostsFile && h.state.Files[path].There {
		mode = h.state.Files[path].Mode
	}
	if err := disk.MkdirAll(h.o.FS, filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return atomicfile.WriteTo(h.o.FS, name, body, mode)
}

// putBack makes a file what it was before.
func (h *Host) putBack(path string) error {
	was, ok := h.state.Files[path]
	if !ok {
		return nil
	}
	name := h.at(path)
	body := was.Body
	if path == hostsFile {
		now, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		body, _ = withoutBlock(now)
		was.There = was.There || len(body) > 0
	}
	if was.There {
		return atomicfile.WriteTo(h.o.FS, name, body, max(was.Mode, 0o400))
	}
	if err := h.o.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := h.o.FS.SyncDir(filepath.Dir(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// differs says in lines for people what apply would change.
func (h *Host) differs(s *hostconfig.Settings) []string {
	var out []string
	for _, sec := range h.sections(s) {
		if sec.needs != nil {
			if err := sec.needs(); err != nil {
				out = append(out, sec.name+": "+err.Error())
				continue
			}
		}
		lines := h.valuesDiffer(&sec)
		for _, path := range slices.Sorted(maps.Keys(sec.files)) {
			now, want, err := h.compare(path, sec.files[path])
			if err != nil {
				lines = append(lines, err.Error())
			} else if !bytes.Equal(now, want) {
				lines = append(lines, "/"+path+": "+diff(now, want))
			}
		}
		for _, path := range h.gone(&sec) {
			lines = append(lines, "/"+path+": as it was before")
		}
		out = append(out, lines...)
	}
	return out
}

func (h *Host) valuesDiffer(sec *section) []string {
	var out []string
	for _, v := range slices.Concat(sec.values, h.lost(sec)) {
		if now, err := h.kernel(v.path); err != nil {
			out = append(out, v.label+": "+err.Error())
		} else if now != v.normal() {
			out = append(out, fmt.Sprintf("%s: %s → %s", v.label, now, v.normal()))
		}
	}
	if len(out) == 0 && len(sec.values) > 0 {
		if now, _ := os.ReadFile(h.at(sec.dropIn)); !bytes.Equal(now, linesOf(sec.values)) {
			out = append(out, "/"+sec.dropIn+": "+diff(now, linesOf(sec.values)))
		}
	}
	return out
}

// diff names the lines that go and come; comments are none.
func diff(now, want []byte) string {
	lines := func(b []byte) []string {
		return slices.DeleteFunc(strings.Split(string(b), "\n"), func(l string) bool { return l == "" || l[0] == '#' })
	}
	a, b := lines(now), lines(want)
	var out []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			out = append(out, "-"+l[:min(len(l), 80)])
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			out = append(out, "+"+l[:min(len(l), 80)])
		}
	}
	if len(out) == 0 {
		return "other comments or another order"
	}
	return strings.ToValidUTF8(strings.Join(out[:min(len(out), 6)], ", "), "")
}
