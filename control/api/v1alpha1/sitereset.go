package v1alpha1

import (
	"crypto/rand"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SiteReset asks for a factory reset of a site.
type SiteReset struct {
	// ID names the request: another one is another request, and takes the place of the one
	// before. The CLI makes one up.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	ID string `json:"id"`
	// Expires is until when the site may begin, by control's clock. A site that is not
	// connected by then is left as it is.
	Expires metav1.Time `json:"expires"`
	// Spool says what becomes of samples that the site has not sent yet: Drain sends them
	// first, for at most 15 minutes, Discard does not.
	// +kubebuilder:validation:Enum=Drain;Discard
	// +kubebuilder:default=Drain
	// +optional
	Spool string `json:"spool,omitempty"`
	// Approval says whether the site, when it is back, gets its certificate at once
	// (Automatic), or waits like one that registers for the first time (Manual).
	// +kubebuilder:validation:Enum=Automatic;Manual
	// +kubebuilder:default=Automatic
	// +optional
	Approval string `json:"approval,omitempty"`
}

// Values of SiteReset.
const (
	ResetDrain   = "Drain"
	ResetDiscard = "Discard"

	ResetAutomatic = "Automatic"
	ResetManual    = "Manual"
)

// How long a request for a reset may wait for its site.
const (
	MinResetWait = time.Minute
	MaxResetWait = 30 * 24 * time.Hour
)

// AskReset is a new request, under an ID of its own, that waits so long for the site.
func AskReset(now time.Time, wait time.Duration, discardSpool, approveAgain bool) *SiteReset {
	r := &SiteReset{ID: strings.ToLower(rand.Text()), Expires: metav1.NewTime(now.Add(wait)), Spool: ResetDrain, Approval: ResetAutomatic}
	if discardSpool {
		r.Spool = ResetDiscard
	}
	if approveAgain {
		r.Approval = ResetManual
	}
	return r
}

// ResetPhase is how far a factory reset is.
type ResetPhase string

// The phases.
const (
	ResetAsked     ResetPhase = "Asked"     // the site has not answered yet
	ResetConfirmed ResetPhase = "Confirmed" // it has, and its order is under way to it
	ResetResetting ResetPhase = "Resetting" // it has begun
	ResetCompleted ResetPhase = "Completed" // it is back, with its new key
	ResetExpired   ResetPhase = "Expired"   // it has not begun in time
	ResetRefused   ResetPhase = "Refused"   // it does not take resets
	ResetCancelled ResetPhase = "Cancelled" // the request was taken back
)

// Over tells whether nothing more is asked of the site.
func (p ResetPhase) Over() bool {
	return p == ResetCompleted || p == ResetExpired || p == ResetRefused || p == ResetCancelled
}

// SiteResetStatus is what became of a factory reset.
type SiteResetStatus struct {
	// ID of the request.
	ID string `json:"id"`
	// +kubebuilder:validation:Enum=Asked;Confirmed;Resetting;Completed;Expired;Refused;Cancelled
	Phase ResetPhase `json:"phase"`
	// Since when it is in that phase.
	Since metav1.Time `json:"since"`
	// Message is one line for a person.
	// +kubebuilder:validation:MaxLength=500
	// +optional
	Message string `json:"message,omitempty"`
	// Key is the hash of the key that the site had when it was asked.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Key string `json:"key"`
	// NextKey is the hash of the key with which it comes back: it vouched for it with the
	// one that it has. It, and no other, may take the place of spec.publicKey.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	NextKey string `json:"nextKey,omitempty"`
	// Nonce is what the site made up for its order, in hex.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	Nonce string `json:"nonce,omitempty"`
	// Order is what the site is given, signed by control. It is no secret: it is good for this
	// site, once, for as long as the site's nonce lives.
	// +kubebuilder:validation:MaxLength=20000
	// +optional
	Order []byte `json:"order,omitempty"`
}

// ConditionResetOverdue is True while a site that began a factory reset has not come back for
// longer than ResetOverdueAfter.
const ConditionResetOverdue = "ResetOverdue"

// ResetOverdueAfter is how long after it began a site is expected back: a quarter of an hour
// goes to what it may have to give back first, the rest to a start and a slow uplink.
const ResetOverdueAfter = time.Hour

// Overdue tells whether the site began, and should have been back by now.
func (r *SiteResetStatus) Overdue(now time.Time) bool {
	return r != nil && r.Phase == ResetResetting && now.Sub(r.Since.Time) >= ResetOverdueAfter
}

// ComesBackAs tells whether this is the site that comes back after a reset with a key.
func (s *Site) ComesBackAs(keyHash string) bool {
	r := s.Status.Reset
	return r != nil && keyHash != "" && r.NextKey == keyHash && r.Key == s.Spec.PublicKey
}
