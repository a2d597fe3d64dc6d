package hold

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"muster.dev/muster/control/api/offered"
	"muster.dev/muster/control/api/v1alpha1"
)

// AnnotationEnded, on a state, is the phase in which its rollout ended: sites keep what it
// says, and nothing moves by it any more.
const AnnotationEnded = "muster.dev/rollout-ended"

// Ended tells whether nothing moves by the state any more.
func Ended(st *v1alpha1.RolloutState) bool { return st.Annotations[AnnotationEnded] != "" }

// Object is one that comes under a rollout.
type Object struct {
	Kind offered.Kind
	Name string
	// From is the content that it has, To the one that it gets.
	From, To runtime.RawExtension
	// Written: the rollout writes To into it; else a person did.
	Written bool
}

// Start is what a state is made of.
type Start struct {
	Namespace, Name string
	Objects         []Object
	// Old is the state that holds these objects now; nil, or one that holds nothing: the
	// sites have From.
	Old *v1alpha1.RolloutState
	// Policy whose plan is followed, and the user whose write it is, of an ordinary write.
	Policy, By string
}

// Begin returns the state with which a rollout begins: every site has what it had. It
// takes over from the old one, whose objects it has as well, and whose contents that no
// site has any more are left out.
func Begin(s Start) (*v1alpha1.RolloutState, error) {
	out := &v1alpha1.RolloutState{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RolloutState"},
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       v1alpha1.RolloutStateSpec{Held: true, Policy: s.Policy, By: s.By},
	}
	kept := []int{0} // the old digits that go on
	if s.Old != nil && s.Old.Spec.Held {
		old := &s.Old.Spec
		out.Spec.Supersedes = s.Old.Name
		kept = used(old)
		out.Spec.Sites = old.Sites
		n := len(strings.Fields(old.Sites))
		out.Spec.Steps = strings.Repeat(string(v1alpha1.StepWaiting), n)
		has := make([]byte, n)
		for i := range has {
			d := 0
			if i < len(old.Has) && old.Has[i] > '0' && old.Has[i] <= '9' {
				d = int(old.Has[i] - '0')
			}
			has[i] = '0' + byte(slices.Index(kept, d))
		}
		out.Spec.Has = string(has)
		for _, o := range old.Objects {
			if at := slices.IndexFunc(s.Objects, func(x Object) bool { return x.is(&o) }); at >= 0 {
				continue
			}
			next := v1alpha1.RolloutObject{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, Written: o.Written}
			for _, d := range kept {
				next.Contents = append(next.Contents, content(&o, d))
			}
			next.Contents = append(next.Contents, content(&o, len(o.Contents)-1))
			out.Spec.Objects = append(out.Spec.Objects, next)
		}
	}
	if len(kept) >= MaxContents {
		return nil, fmt.Errorf("the sites have %d contents of it by now, and can have %d: abort rollout %s or wait until it has brought them together", len(kept), MaxContents-1, s.Old.Name)
	}
	for _, o := range s.Objects {
		next := v1alpha1.RolloutObject{APIVersion: o.Kind.GroupVersionKind().GroupVersion().String(), Kind: o.Kind.Kind, Name: o.Name, Written: o.Written}
		var before *v1alpha1.RolloutObject
		if out.Spec.Supersedes != "" {
			before = Find(&s.Old.Spec, o.Kind, o.Name)
		}
		for _, d := range kept {
			if before != nil && len(before.Contents) > 0 {
				next.Contents = append(next.Contents, content(before, d))
			} else {
				next.Contents = append(next.Contents, o.From)
			}
		}
		next.Contents = append(next.Contents, o.To)
		out.Spec.Objects = append(out.Spec.Objects, next)
	}
	size := 0
	for _, o := range out.Spec.Objects {
		for _, c := range o.Contents {
			size += len(c.Raw)
		}
	}
	if size > MaxBytes {
		return nil, fmt.Errorf("what sites have and what they shall get has %d bytes together, which is more than the %d that a rollout can move: split the object, or move less at once", size, MaxBytes)
	}
	return out, nil
}

// NewState is Begin for the one object of an ordinary write.
func NewState(old *v1alpha1.RolloutState, namespace, name string, object Object, policy, by string) (*v1alpha1.RolloutState, error) {
	st, err := Begin(Start{Namespace: namespace, Name: name, Objects: []Object{object}, Old: old, Policy: policy, By: by})
	if err != nil {
		return nil, err
	}
	st.Labels = Labels(object.Kind, object.Name)
	return st, nil
}

func (o *Object) is(x *v1alpha1.RolloutObject) bool { return of(x, o.Kind, o.Name) }

func of(x *v1alpha1.RolloutObject, kind offered.Kind, name string) bool {
	group, _, found := strings.Cut(x.APIVersion, "/")
	if !found {
		group = ""
	}
	return x.Name == name && x.Kind == kind.Kind && group == kind.Group
}

// Find returns an object of a state, in whichever version of its API; nil: it has none
// such.
func Find(s *v1alpha1.RolloutStateSpec, kind offered.Kind, name string) *v1alpha1.RolloutObject {
	for i := range s.Objects {
		if of(&s.Objects[i], kind, name) {
			return &s.Objects[i]
		}
	}
	return nil
}

// content is the one with this digit, or the first where there is none.
func content(o *v1alpha1.RolloutObject, d int) runtime.RawExtension {
	switch {
	case d >= 0 && d < len(o.Contents):
		return o.Contents[d]
	case len(o.Contents) > 0:
		return o.Contents[0]
	}
	return runtime.RawExtension{Raw: []byte("{}")}
}

// used are the digits that some site has, and the first: it is that of sites which are
// not listed.
func used(s *v1alpha1.RolloutStateSpec) []int {
	out := []int{0}
	for _, d := range s.Assigned() {
		out = append(out, d)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
