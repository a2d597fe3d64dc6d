package wire

// HeaderPurpose says on a regional's query listener, which is closed to sites and users,
// what a query is for. Those of PurposeHealth have slots that nobody else gets.
const (
	HeaderPurpose = "X-Muster-Purpose"
	PurposeHealth = "health"
)
