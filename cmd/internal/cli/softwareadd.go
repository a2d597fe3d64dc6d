package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/agent/software/images"
	"muster.dev/muster/control/api/v1alpha1"
	"muster.dev/muster/control/api/validation"
	"muster.dev/muster/internal/fleet"
	"muster.dev/muster/internal/software"
	"muster.dev/muster/internal/software/bundle"
	"muster.dev/muster/internal/software/bundle/publish"
)

func softwareAddCmd(g *Globals) *cobra.Command {
	s := &softwareRepo{g: g}
	var files, requires []string
	var notes, image string
	var deltas int
	var noObject bool
	cmd := &cobra.Command{
		Use: "add COMPONENT VERSION", Short: "Release a version: sign its files and make its SoftwareVersion", Args: cobra.ExactArgs(2),
		Long: `Release a version of os, agent or platform. Its files go into the repository and are
signed; deltas are made from the versions before, so that a site fetches only what is new;
and a SoftwareVersion object of the tenant names them. No site does anything yet: a
SoftwarePolicy, or a rollout of one, says who gets it.

Without --file and --image the SoftwareVersion is made of what the repository has of this version, for
one tenant or with --all-tenants for each: that needs no key. With --no-object only the
repository changes, which needs no control plane. To say the same again does no harm; a
version never gets other files.`,
		Example: `  muster software add agent 1.4.2 --file amd64=bin/muster-edge --file arm64=bin/muster-edge-arm64 --keys /media/stick/muster
  muster software add os 2.1.0 --file image.img --requires os=2.0.0 --notes 'kernel 6.12' --keys /media/stick/muster
  muster software add agent 1.4.2 --file amd64=bin/muster-edge --image registry.example.com/muster-edge:v1.4.2@sha256:6d2f…
  muster software add agent 1.4.2 --tenant acme`,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := newVersion(args[0], args[1], requires, notes)
			if err != nil {
				return err
			}
			paths, err := filesOf(files)
			if err != nil {
				return err
			}
			if image != "" {
				ref, err := referenceOf(image)
				if err != nil {
					return err
				}
				defer os.Remove(ref)
				paths[software.Kubernetes] = ref
			}
			r, at, err := s.standing(cmd)
			if err != nil {
				return err
			}
			if len(paths) > 0 {
				if err := s.needTargets(r); err != nil {
					return err
				}
				p := &publisher{r: r, at: at, out: cmd.OutOrStdout(), progress: cmd.ErrOrStderr(), deltas: deltas}
				if err := p.add(cmd.Context(), v, paths); err != nil {
					return err
				}
				s.whenSeen(cmd.OutOrStdout(), r)
			} else if err := fromRepository(v, at); err != nil {
				return err
			}
			if noObject {
				return nil
			}
			return g.makeVersions(cmd, v)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"os", "agent", "platform"}, cobra.ShellCompDirectiveNoFileComp),
	}
	s.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&files, "file", nil, "ARCH=FILE of an architecture (amd64, arm64, arm, riscv64), or FILE for any; repeatable")
	f.StringVar(&image, "image", "", "IMAGE@sha256:DIGEST of muster-edge, for sites that are Kubernetes clusters: they take it from their own repository, so that the digest alone counts, and the tag for people")
	f.StringArrayVar(&requires, "requires", nil, "COMPONENT=VERSION that a site must run before; repeatable")
	f.StringVar(&notes, "notes", "", "for people: what is new, or where that can be read")
	f.IntVar(&deltas, "deltas", 3, "from how many versions before deltas are made; 0: none")
	f.BoolVar(&noObject, "no-object", false, "publish the files only; make the SoftwareVersion later, without --file")
	g.AddFlags(cmd)
	return cmd
}

// newVersion checks what can be checked before anything is uploaded.
func newVersion(component, number string, requires []string, notes string) (*v1alpha1.SoftwareVersion, error) {
	v := &v1alpha1.SoftwareVersion{ObjectMeta: metav1.ObjectMeta{Name: component + "-" + number},
		Spec: v1alpha1.SoftwareVersionSpec{Component: v1alpha1.SoftwareComponent(component), Version: number, Notes: notes}}
	if !slices.Contains([]string{"os", "agent", "platform"}, component) {
		return nil, fmt.Errorf("component %q: want os, agent or platform", component)
	}
	for _, req := range requires {
		c, of, ok := strings.Cut(req, "=")
		if !ok || !slices.Contains([]string{"os", "agent", "platform"}, c) {
			return nil, fmt.Errorf("--requires %q: want COMPONENT=VERSION, such as os=2.0.0", req)
		}
		if v.Spec.Requires == nil {
			v.Spec.Requires = map[v1alpha1.SoftwareComponent]string{}
		}
		v.Spec.Requires[v1alpha1.SoftwareComponent(c)] = of
	}
	if errs := validation.SoftwareVersion(v); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return v, nil
}

// filesOf reads --file: paths by architecture.
func filesOf(flags []string) (map[string]string, error) {
	known := []string{"any", "amd64", "arm64", "arm", "riscv64"}
	out := map[string]string{}
	for _, f := range flags {
		arch, path, ok := strings.Cut(f, "=")
		if !ok {
			arch, path = "any", f
		}
		switch {
		case !slices.Contains(known, arch):
			return nil, fmt.Errorf("--file %q: %q is no architecture; want %s, or the path alone", f, arch, strings.Join(known, ", "))
		case out[arch] != "":
			return nil, fmt.Errorf("--file %q: %s has a file already", f, arch)
		}
		st, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		if !st.Mode().IsRegular() || st.Size() == 0 {
			return nil, fmt.Errorf("--file %q: want a file that is not empty", f)
		}
		out[arch] = path
	}
	if out["any"] != "" && len(out) > 1 {
		return nil, errors.New("--file: want either one file for any architecture, or one for each")
	}
	return out, nil
}

// referenceOf writes the file that stands for an image, and returns its path.
func referenceOf(image string) (path string, err error) {
	_, tag, digest := images.Split(image)
	ref := images.Reference{Digest: digest, Tag: tag}
	if err := ref.Validate(); err != nil {
		return "", fmt.Errorf("--image %q: want it with its digest, as IMAGE:TAG@sha256:…, which pushing it has printed: %w", image, err)
	}
	b, err := json.Marshal(ref)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp("", "muster-image-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	return f.Name(), errors.Join(err, f.Close())
}

// fromRepository takes the files of what was published.
func fromRepository(v *v1alpha1.SoftwareVersion, at *publish.Standing) error {
	for _, t := range at.Targets {
		if t.Component == string(v.Spec.Component) && t.Version == v.Spec.Version {
			v.Spec.Bundles = append(v.Spec.Bundles, v1alpha1.SoftwareBundle{Architecture: t.Architecture, Target: t.Name, Digest: t.Digest, Size: t.Size})
		}
	}
	if len(v.Spec.Bundles) == 0 {
		return fmt.Errorf("the repository has no %s %s: release it with --file ARCH=FILE, or `muster software list` what there is", v.Spec.Component, v.Spec.Version)
	}
	return nil
}

// publisher brings the files of a version into the repository.
type publisher struct {
	r        *publish.Repository
	at       *publish.Standing
	out      io.Writer
	progress io.Writer
	deltas   int
}

func (p *publisher) add(ctx context.Context, v *v1alpha1.SoftwareVersion, paths map[string]string) error {
	component, number := string(v.Spec.Component), v.Spec.Version
	for _, arch := range slices.Sorted(maps.Keys(paths)) {
		f, err := os.Open(paths[arch])
		if err != nil {
			return err
		}
		t, err := p.file(ctx, bundle.About{Component: component, Version: number, Architecture: arch}, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		v.Spec.Bundles = append(v.Spec.Bundles, v1alpha1.SoftwareBundle{Architecture: arch, Target: t.Name, Digest: t.Digest, Size: t.Size})
	}
	return nil
}

// file is signed last: whoever sees its name finds its content and its deltas.
func (p *publisher) file(ctx context.Context, about bundle.About, f *os.File) (bundle.Target, error) {
	name := about.Component + "/" + about.Version + "/" + about.Architecture
	st, err := f.Stat()
	if err != nil {
		return bundle.Target{}, err
	}
	see := &seen{ReadSeeker: f, w: p.progress, what: name, size: st.Size(), fancy: styleOf(p.progress).colour}
	digest, size, err := publish.Digest(see)
	if err != nil {
		return bundle.Target{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	t := bundle.Target{Name: name, Digest: digest, Size: size, About: about}
	if i := slices.IndexFunc(p.at.Targets, func(o bundle.Target) bool { return o.Name == name }); i >= 0 && p.at.Targets[i].Digest == digest {
		fmt.Fprintf(p.out, "%s is in the repository already\n", name)
		return t, nil
	}
	for _, old := range earlier(p.at.Targets, about, p.deltas) {
		if err := p.delta(ctx, old, t, f); err != nil {
			return t, err
		}
	}
	see.verb, see.silent = "stored", 2 // this, and once more when it is stored
	if _, err := see.Seek(0, io.SeekStart); err != nil {
		return t, err
	}
	t, err = p.r.Add(ctx, name, about, see)
	if err != nil {
		return t, err
	}
	see.end()
	fmt.Fprintf(p.out, "%s: %s, SHA-256 %.12s…\n", name, bytesText(float64(t.Size)), t.Digest)
	return t, nil
}

// earlier are the newest files before this one of its architecture, at most n.
func earlier(all []bundle.Target, of bundle.About, n int) []bundle.Target {
	parse := func(v string) *version.Version {
		p, err := version.ParseSemantic(v)
		if err != nil {
			return version.MustParseSemantic("0.0.0")
		}
		return p
	}
	if of.Architecture == software.Kubernetes {
		return nil // a few bytes
	}
	var out []bundle.Target
	for _, t := range all {
		if t.Component == of.Component && (t.Architecture == of.Architecture || t.Architecture == "any") && parse(t.Version).LessThan(parse(of.Version)) {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b bundle.Target) int {
		if parse(a.Version).LessThan(parse(b.Version)) {
			return 1
		}
		return -1
	})
	return out[:min(n, len(out))]
}

func (p *publisher) delta(ctx context.Context, old, to bundle.Target, f *os.File) error {
	in, err := p.r.Store.Get(ctx, publish.Blob(old.Digest))
	if err != nil {
		return fmt.Errorf("delta from %s: %w", old.Name, err)
	}
	defer in.Close()
	from, ok := in.(io.ReaderAt)
	if !ok { // of a bucket
		tmp, err := os.CreateTemp("", "muster-software-*")
		if err != nil {
			return err
		}
		defer func() {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}()
		if _, err := io.Copy(tmp, in); err != nil {
			return fmt.Errorf("delta from %s: %w", old.Name, err)
		}
		from = tmp
	}
	see := &seen{ReadSeeker: f, w: p.progress, what: "delta from " + old.Version, verb: "compared", size: to.Size, fancy: styleOf(p.progress).colour}
	if _, err := see.Seek(0, io.SeekStart); err != nil {
		return err
	}
	made, err := p.r.AddDelta(ctx, old, to, from, see)
	if err != nil {
		return err
	}
	see.end()
	if made > to.Size/10*8 {
		fmt.Fprintf(p.out, "  from %s: too much is new for a delta, sites fetch the whole file\n", old.Version)
		return nil
	}
	fmt.Fprintf(p.out, "  from %s: %s instead of %s\n", old.Version, bytesText(float64(made)), bytesText(float64(to.Size)))
	return nil
}

// seen tells how far a file was read.
type seen struct {
	io.ReadSeeker
	w          io.Writer
	what, verb string
	size, at   int64
	told       int64 // percent
	fancy      bool
	silent     int // before so many more seeks nothing is told
}

// Read implements io.Reader.
func (s *seen) Read(b []byte) (int, error) {
	n, err := s.ReadSeeker.Read(b)
	s.at += int64(n)
	// A terminal sees it move; a log has a line for each fourth of a large file.
	step := int64(1)
	if !s.fancy {
		step = 25
	}
	if percent := s.at * 100 / s.size; s.verb != "" && s.silent == 0 && s.size > 8<<20 && percent/step > s.told/step {
		s.told = percent
		if s.fancy {
			fmt.Fprintf(s.w, "\r\x1b[K%s: %d %% of %s %s", filepath.ToSlash(s.what), percent, bytesText(float64(s.size)), s.verb)
		} else {
			fmt.Fprintf(s.w, "%s: %d %% of %s %s\n", s.what, percent, bytesText(float64(s.size)), s.verb)
		}
	}
	return n, err
}

// Seek implements io.Seeker.
func (s *seen) Seek(offset int64, whence int) (int64, error) {
	at, err := s.ReadSeeker.Seek(offset, whence)
	s.at, s.told, s.silent = at, 0, max(s.silent-1, 0)
	return at, err
}

func (s *seen) end() {
	if s.fancy && s.told > 0 {
		fmt.Fprint(s.w, "\r\x1b[K")
	}
}

// makeVersions makes the object for the tenant, or with --all-tenants for each.
func (g *Globals) makeVersions(cmd *cobra.Command, v *v1alpha1.SoftwareVersion) error {
	c, tenants, err := g.connect(cmd.Context())
	if err != nil {
		return fmt.Errorf("%w; its files are published: say it again without --file for the SoftwareVersion", err)
	}
	if len(tenants) > 1 && !g.AllTenants {
		return fmt.Errorf("whose is it? Its files are published; name a tenant with --tenant, or take --all-tenants: %s", strings.Join(tenantNames(tenants), ", "))
	}
	for _, t := range tenants {
		own := v.DeepCopy()
		own.Namespace = fleet.SystemNamespace(t.Name)
		err := c.Create(cmd.Context(), own)
		if apierrors.IsAlreadyExists(err) {
			err = sameVersion(cmd.Context(), c, v, own)
		}
		if err != nil {
			return fmt.Errorf("tenant %s: %w", t.Name, err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "softwareversion/%s is there for tenant %s; a SoftwarePolicy says who gets it\n", v.Name, t.Name)
	}
	return nil
}

// sameVersion is nil if the object that is there says the same; its notes may change.
func sameVersion(ctx context.Context, c client.Client, want, own *v1alpha1.SoftwareVersion) error {
	have := &v1alpha1.SoftwareVersion{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(own), have); err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(have.Spec.Bundles, want.Spec.Bundles) {
		return fmt.Errorf("SoftwareVersion %s names other files, and sites may have them: choose another version", have.Name)
	}
	if len(want.Spec.Requires) > 0 && !apiequality.Semantic.DeepEqual(have.Spec.Requires, want.Spec.Requires) {
		return fmt.Errorf("SoftwareVersion %s requires something else, which can't be changed: choose another version", have.Name)
	}
	if want.Spec.Notes == "" || have.Spec.Notes == want.Spec.Notes {
		return nil
	}
	before := have.DeepCopy()
	have.Spec.Notes = want.Spec.Notes
	return c.Patch(ctx, have, client.MergeFrom(before))
}
