package lease

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodes are made from words: a name, then / and what it is: c control-plane, d down,
// x cordoned.
func nodes(words string) []corev1.Node {
	var out []corev1.Node
	for word := range strings.FieldsSeq(words) {
		name, is, _ := strings.Cut(word, "/")
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		status := corev1.ConditionTrue
		for _, c := range is {
			switch c {
			case 'c':
				n.Labels[controlPlane[0]] = ""
			case 'd':
				status = corev1.ConditionUnknown
			case 'x':
				n.Spec.Unschedulable = true
			}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status}}
		out = append(out, n)
	}
	return out
}

func TestQuorum(t *testing.T) {
	for _, tc := range []struct {
		nodes string
		min   int
		want  string // of what is in the way; empty: nothing
		moves bool   // its pods can run elsewhere
	}{
		{"a/c", 0, "", false},
		{"a/c", 1, "0 nodes would be Ready and schedulable, want 1", false},
		{"a/c b", 0, "", true},
		{"a/c b/d", 0, "", false},
		{"a/c b/x", 0, "", false},
		{"a/c b/c", 0, "", true},
		{"a/c b/cd", 0, "0 of 2 control-plane nodes would be Ready, want 1; not Ready: b", false},
		{"a/c b/c c/c", 0, "", true},
		{"a/c b/c c/cd", 0, "1 of 3 control-plane nodes would be Ready, want 2; not Ready: c", true},
		{"a/c b/cx c/c", 0, "", true}, // cordoned, and etcd runs
		{"a/c b/c c/c d/c", 0, "", true},
		{"a/c b/c c/c d/cd", 0, "2 of 4", true},
		{"a/c b/c c/c d/c e/cd", 0, "", true},
		{"a/c b/c c/c d/cd e/cd", 0, "2 of 5 control-plane nodes would be Ready, want 3", true},
		{"a b/c c/cd d/cd", 0, "", true}, // a worker takes nothing from the quorum
		{"a b c/d", 2, "1 nodes would be", true},
		{"a b c/x", 2, "1 nodes would be", true},
		{"a b c", 2, "", true},
	} {
		err := spare(nodes(tc.nodes), "a", tc.min)
		if got := ""; err != nil {
			got = err.Error()
			if tc.want == "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %s, want %q", tc.nodes, got, tc.want)
			}
		} else if tc.want != "" {
			t.Errorf("%s: nothing is in the way, want %q", tc.nodes, tc.want)
		}
		if got := replaceable(nodes(tc.nodes), "a"); got != tc.moves {
			t.Errorf("%s: replaceable %t", tc.nodes, got)
		}
	}
}
