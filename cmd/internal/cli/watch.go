package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// watched is one list of `muster get -w`: where it was read, and up to where.
type watched struct {
	list    client.ObjectList
	options []client.ListOption
	version string
}

// follow prints each object that changes after the lists were read, in columns as wide as
// those before, until ctx ends. row returns nil for what was not asked for.
func (g *Globals) follow(ctx context.Context, w io.Writer, c client.WithWatch, lists []watched, widths []int, row func(client.Object) []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan watch.Event)
	failed := make(chan error, len(lists))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, l := range lists {
		// It goes on by itself where a connection ends, which the API server sees to.
		again, err := toolswatch.NewRetryWatcherWithContext(ctx, l.version, listWatch{c, l})
		if err != nil {
			return err
		}
		all.Go(func() {
			defer again.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, ok := <-again.ResultChan():
					if !ok {
						failed <- fmt.Errorf("the control plane does not say any more what changes: run it again")
						return
					}
					select {
					case events <- e:
					case <-ctx.Done():
						return
					}
				}
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case e := <-events:
			if e.Type == watch.Error {
				return apierrors.FromObject(e.Object)
			}
			o, ok := e.Object.(client.Object)
			if !ok || e.Type == watch.Bookmark {
				continue
			}
			cells := row(o)
			if cells == nil {
				continue
			}
			if err := g.printChange(w, e.Type, o, cells, widths); err != nil {
				return err
			}
		}
	}
}

func (g *Globals) printChange(w io.Writer, typ watch.EventType, o client.Object, cells []string, widths []int) error {
	switch g.Output {
	case "json":
		return json.NewEncoder(w).Encode(o)
	case "yaml":
		b, err := yaml.Marshal(o)
		if err == nil {
			_, err = fmt.Fprintf(w, "---\n%s", b)
		}
		return err
	}
	var line strings.Builder
	for i, cell := range cells[:len(widths)] {
		cell = strings.ReplaceAll(printable(cell), "\t", " ")
		line.WriteString(cell)
		if i < len(widths)-1 {
			line.WriteString(strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0)+3))
		}
	}
	if typ == watch.Deleted {
		line.WriteString("   (deleted)")
	}
	_, err := fmt.Fprintln(w, line.String())
	return err
}

// widths are those of a table's columns that are shown.
func (g *Globals) widths(t table) []int {
	n := t.wide
	if g.Output == "wide" || n == 0 {
		n = len(t.header)
	}
	out := make([]int, n)
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i := range out {
			out[i] = max(out[i], utf8.RuneCountInString(printable(row[i])))
		}
	}
	return out
}

// listWatch watches one list.
type listWatch struct {
	c client.WithWatch
	l watched
}

// WatchWithContext implements cache.WatcherWithContext.
func (l listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return l.c.Watch(ctx, l.l.list, append(l.l.options, &client.ListOptions{Raw: &o})...)
}
