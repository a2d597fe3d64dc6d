package cluster

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// program is a process of a container: a POSIX shell over the container's own directory, with
// the commands that examples and charts use. It runs nothing of the machine's.
type program struct {
	box      *box
	in       io.Reader
	out, err io.Writer
	// unknown is what a command does that none of ours is.
	unknown func(ctx context.Context, argv []string) int32
}

// notFound is what a shell says.
func notFound(ctx context.Context, argv []string) int32 {
	if h, ok := ctx.Value(interpKey{}).(io.Writer); ok && len(argv) > 0 {
		fmt.Fprintf(h, "%s: not found\n", argv[0])
	}
	return 127
}

type interpKey struct{}

// run runs a command and returns its exit code.
func (p program) run(ctx context.Context, argv []string) int32 {
	if len(argv) == 0 {
		return p.unknown(ctx, nil)
	}
	script, args := "", []string(nil)
	switch path.Base(argv[0]) {
	case "sh", "bash", "ash":
		switch {
		case len(argv) >= 3 && strings.HasPrefix(argv[1], "-") && strings.HasSuffix(argv[1], "c"):
			script = argv[2]
			args = argv[min(len(argv), 4):]
		case p.in != nil:
			b, err := io.ReadAll(p.in)
			if err != nil {
				return 1
			}
			script = string(b)
		}
	default:
		quoted := make([]string, len(argv))
		for i, a := range argv {
			q, err := syntax.Quote(a, syntax.LangPOSIX)
			if err != nil {
				return p.unknown(ctx, argv)
			}
			quoted[i] = q
		}
		script = strings.Join(quoted, " ")
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		fmt.Fprintln(p.err, err)
		return 2
	}
	env := []string{"PATH=/bin", "HOME=/", "HOSTNAME=" + p.box.sandbox.config.Hostname}
	for _, kv := range p.box.config.Envs {
		env = append(env, kv.Key+"="+kv.Value)
	}
	runner, err := interp.New(interp.StdIO(p.in, p.out, p.err), interp.Env(expand.ListEnviron(env...)), interp.Dir("/"), interp.Params(append([]string{"--"}, args...)...),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return p.exec }),
		interp.OpenHandler(func(ctx context.Context, name string, flag int, perm fs.FileMode) (io.ReadWriteCloser, error) {
			if name == "/dev/null" {
				return devNull{}, nil
			}
			return os.OpenFile(p.inside(ctx, name), flag, perm)
		}),
		interp.StatHandler(func(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
			return os.Stat(p.inside(ctx, name))
		}),
		interp.ReadDirHandler2(func(ctx context.Context, name string) ([]fs.DirEntry, error) {
			return os.ReadDir(p.inside(ctx, name))
		}))
	if err != nil {
		fmt.Fprintln(p.err, err)
		return 2
	}
	err = runner.Run(ctx, file)
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int32(status)
	case ctx.Err() != nil:
		return 143
	default:
		fmt.Fprintln(p.err, err)
		return 1
	}
}

// inside is where a path of the container lies.
func (p program) inside(ctx context.Context, name string) string {
	if !path.IsAbs(name) {
		name = path.Join(interp.HandlerCtx(ctx).Dir, name)
	}
	return filepath.Join(p.box.root, path.Join("/", name))
}

type devNull struct{}

func (devNull) Read([]byte) (int, error)    { return 0, io.EOF }
func (devNull) Write(b []byte) (int, error) { return len(b), nil }
func (devNull) Close() error                { return nil }

// exec is a command of a script that the shell has not built in.
func (p program) exec(ctx context.Context, argv []string) error {
	h := interp.HandlerCtx(ctx)
	if h.Stdin == nil {
		h.Stdin = strings.NewReader("")
	}
	code := int32(0)
	fail := func(err error) {
		if err != nil {
			fmt.Fprintf(h.Stderr, "%s: %v\n", argv[0], err)
			code = 1
		}
	}
	switch path.Base(argv[0]) {
	case "cat":
		if len(argv) == 1 {
			_, err := io.Copy(h.Stdout, h.Stdin)
			fail(err)
		}
		for _, name := range argv[1:] {
			b, err := os.ReadFile(p.inside(ctx, name))
			fail(hide(err, p.box.root))
			_, _ = h.Stdout.Write(b)
		}
	case "ls":
		dir := "."
		if len(argv) > 1 {
			dir = argv[len(argv)-1]
		}
		entries, err := os.ReadDir(p.inside(ctx, dir))
		fail(hide(err, p.box.root))
		for _, e := range entries {
			fmt.Fprintln(h.Stdout, e.Name())
		}
	case "env", "printenv":
		h.Env.Each(func(name string, v expand.Variable) bool {
			if v.Exported {
				fmt.Fprintf(h.Stdout, "%s=%s\n", name, v.String())
			}
			return true
		})
	case "hostname":
		fmt.Fprintln(h.Stdout, p.box.sandbox.config.Hostname)
	case "date":
		fmt.Fprintln(h.Stdout, time.Now().UTC().Format(time.UnixDate))
	case "mkdir":
		for _, name := range argv[1:] {
			if !strings.HasPrefix(name, "-") {
				fail(hide(os.MkdirAll(p.inside(ctx, name), 0o755), p.box.root))
			}
		}
	case "rm":
		for _, name := range argv[1:] {
			if !strings.HasPrefix(name, "-") {
				fail(hide(os.RemoveAll(p.inside(ctx, name)), p.box.root))
			}
		}
	case "sleep":
		if len(argv) != 2 {
			fail(errors.New("wants a time"))
			break
		}
		d := argv[1]
		if d == "infinity" {
			d = "1000000h"
		}
		if strings.Trim(d, "0123456789.") == "" {
			d += "s"
		}
		wait, err := time.ParseDuration(d)
		fail(err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	case "tar":
		fail(p.tar(ctx, argv[1:], h.Stdin, h.Stdout))
	case "sh", "bash", "ash":
		inner := p
		inner.in, inner.out, inner.err = h.Stdin, h.Stdout, h.Stderr
		code = inner.run(ctx, argv)
	default:
		code = p.unknown(context.WithValue(ctx, interpKey{}, h.Stderr), argv)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if code != 0 {
		return interp.ExitStatus(uint8(code))
	}
	return nil
}

// hide takes the machine's path out of an error.
func hide(err error, root string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("can't open '%s': %w", strings.TrimPrefix(p.Path, root), p.Err)
	}
	return err
}

// tar is as much of tar as copying files into and out of containers needs: "cf - PATH…" and
// "xmf - -C DIR".
func (p program) tar(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("wants an operation")
	}
	op, dir := args[0], "/"
	var names []string
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-C":
			if i++; i < len(args) {
				dir = args[i]
			}
		case "-", "--":
		default:
			names = append(names, args[i])
		}
	}
	if strings.Contains(op, "x") {
		return untar(in, p.inside(ctx, dir))
	}
	w := tar.NewWriter(out)
	for _, name := range names {
		base := p.inside(ctx, path.Join(dir, name))
		err := filepath.Walk(base, func(at string, info fs.FileInfo, err error) error {
			if err != nil {
				return hide(err, p.box.root)
			}
			header, err := tar.FileInfoHeader(info, "")
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(base, at)
			if err != nil {
				return err
			}
			header.Name = path.Join(strings.TrimPrefix(name, "/"), rel)
			if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
				return err
			}
			b, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			_, err = w.Write(b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func untar(in io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			if err := root.MkdirAll(path.Clean(h.Name), 0o755); err != nil {
				return err
			}
		case tar.TypeReg:
			if err := root.MkdirAll(path.Dir(h.Name), 0o755); err != nil {
				return err
			}
			f, err := root.Create(h.Name)
			if err != nil {
				return err
			}
			_, err = io.Copy(f, r)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
}

// logFile is a container's log, in the form that kubelets read.
type logFile struct {
	path string
	mu   sync.Mutex
	f    *os.File
	tees map[io.Writer]bool
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l := &logFile{path: path, tees: map[io.Writer]bool{}}
	return l, l.reopen()
}

func (l *logFile) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if l.f != nil {
		_ = l.f.Close()
	}
	l.f = f
	return nil
}

func (l *logFile) write(stream, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.f, "%s %s F %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, line)
	for w := range l.tees {
		_, _ = io.WriteString(w, line+"\n")
	}
}

// follow writes lines to w as well, until the function that it returns is called.
func (l *logFile) follow(w io.Writer) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tees[w] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.tees, w)
	}
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.f.Close()
}

// stream takes what a program writes and keeps its lines. It is nobody else's.
func (l *logFile) stream(name string) io.Writer { return &lines{log: l, name: name} }

type lines struct {
	log  *logFile
	name string
	mu   sync.Mutex
	rest []byte
}

func (w *lines) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		w.log.write(w.name, string(line))
		w.rest = rest
	}
}

// buffer is a bytes.Buffer that can be closed.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

// link puts a mount's source under its path in a container.
func link(root string, m *runtimeapi.Mount) error {
	at := filepath.Join(root, path.Join("/", m.ContainerPath))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(m.HostPath, at); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// answerHTTP answers each request on a connection with a line.
func answerHTTP(c io.ReadWriteCloser, line string) error {
	defer c.Close()
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return nil // the end, or no HTTP
		}
		_, _ = io.Copy(io.Discard, req.Body)
		resp := http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: req, ContentLength: int64(len(line)),
			Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(line))}
		if err := resp.Write(c); err != nil {
			return err
		}
	}
}

func clone[T proto.Message](m T) T { return proto.Clone(m).(T) }
