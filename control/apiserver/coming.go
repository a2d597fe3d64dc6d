package apiserver

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/admission"

	"muster.dev/muster/control/quota"
)

const comingPluginName = "MusterComingNamespace"

// comingWait bounds how long a new object waits for its tenant's namespace.
const comingWait = 10 * time.Second

// coming lets what stands in a file below its Tenant wait for the tenant's namespaces,
// which the controllers make a moment after the Tenant: else a chart or a file with both
// would need two tries. It stands before the plugin that refuses a namespace that is not
// there.
type coming struct{ ledger *quota.Ledger }

var _ admission.MutationInterface = coming{}

// Handles implements admission.Interface.
func (coming) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface. It changes nothing and refuses nothing.
func (c coming) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" || a.GetKind().Kind == "Namespace" || !c.ledger.Coming(a.GetNamespace()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, comingWait)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for c.ledger.Coming(a.GetNamespace()) {
		select {
		case <-ctx.Done():
			return nil // it is refused, as any namespace that is not there
		case <-again.C:
		}
	}
	return nil
}
