package inventory

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"muster.dev/muster/control/api/v1alpha1"
)

// Book is an inventory without a watch, which takes objects one by one, for tests and
// tools. Not safe for concurrent use.
type Book struct {
	st    *state
	kinds []kind
	last  *Snapshot
}

// NewBook returns one that knows the namespaces of these tenants that every tenant has:
// <tenant>-system and <tenant>-shared.
func NewBook(tenants ...string) *Book {
	b := &Book{st: newState(slog.New(slog.DiscardHandler)), kinds: kinds([]PolicyKind{HealthPolicies(), CollectionPolicies(), SoftwarePolicies(), HostConfigurations()})}
	for _, t := range tenants {
		b.st.putNamespace(t+"-system", t)
		b.st.putNamespace(t+"-shared", t)
	}
	return b
}

// Put adds or replaces objects; a policy that changed needs another generation.
func (b *Book) Put(objs ...client.Object) *Book {
	for _, o := range objs {
		b.kindOf(o).put(b.st, o)
	}
	return b
}

// Drop removes objects, by namespace and name.
func (b *Book) Drop(objs ...client.Object) *Book {
	for _, o := range objs {
		b.kindOf(o).drop(b.st, keyOf(o))
	}
	return b
}

func (b *Book) kindOf(o client.Object) *kind {
	name := ""
	switch o.(type) {
	case *corev1.Namespace:
		name = "namespaces"
	case *v1alpha1.Tenant:
		name = "tenants"
	case *v1alpha1.Site:
		name = "sites"
	case *v1alpha1.VirtualSite:
		name = "virtualsites"
	case *v1alpha1.RolloutState:
		name = "rolloutstates"
	case *v1alpha1.HealthPolicy:
		name = HealthPolicies().Resource
	case *v1alpha1.CollectionPolicy:
		name = CollectionPolicies().Resource
	case *v1alpha1.SoftwarePolicy:
		name = SoftwarePolicies().Resource
	case *v1alpha1.HostConfiguration:
		name = HostConfigurations().Resource
	}
	for i := range b.kinds {
		if b.kinds[i].name == name {
			return &b.kinds[i]
		}
	}
	panic(fmt.Sprintf("inventory: a book has no place for a %T", o))
}

// Snapshot is the fleet as the book has it.
func (b *Book) Snapshot() *Snapshot {
	b.last, _ = b.st.next(b.last)
	return b.last
}
