package registration

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Result says how a registration or renewal ended; it is the label of
// muster_registrations_total and the field of the audit record.
type Result string

// The results.
const (
	Granted   Result = "granted"   // first certificate of a new site
	Reissued  Result = "reissued"  // certificate for a site that registered before
	Pending   Result = "pending"   // waits for approval
	Renewed   Result = "renewed"   //
	Returned  Result = "returned"  // came back after a factory reset, with another key
	Malformed Result = "malformed" // token or request can't be read
	BadToken  Result = "bad_token" // no such tenant, no such token, or a wrong secret
	Revoked   Result = "revoked"
	Expired   Result = "expired"
	Exhausted Result = "exhausted"
	BadName   Result = "bad_name"
	NameTaken Result = "name_taken"
	Quota     Result = "quota"
	Retired   Result = "decommissioned"
	NotKnown  Result = "unknown_site" // renewal for a site that does not exist
	NotYet    Result = "not_approved" // renewal for a site that lost its approval
	WrongKey  Result = "wrong_key"
	BadPolicy Result = "bad_token_spec" // the token object holds something that can't be used
	Failed    Result = "failed"         // our fault; the agent tries again
)

var results = []Result{Granted, Reissued, Pending, Renewed, Returned, Malformed, BadToken, Revoked, Expired, Exhausted,
	BadName, NameTaken, Quota, Retired, NotKnown, NotYet, WrongKey, BadPolicy, Failed}

// Refusal is why somebody got no certificate: one line for the person at the
// machine, with what to do. gRPC turns it into a status by itself.
type Refusal struct {
	Result  Result
	Code    codes.Code
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// GRPCStatus lets a gRPC handler return a Refusal as it is.
func (r *Refusal) GRPCStatus() *status.Status { return status.New(r.Code, r.Message) }

func refuse(result Result, code codes.Code, message string) *Refusal {
	return &Refusal{result, code, message}
}

// badToken is the same for no such tenant, no such token and a wrong secret: a
// forger must not learn which of them it was.
func badToken() *Refusal {
	return refuse(BadToken, codes.PermissionDenied,
		"registration token refused: it is not known, or its secret is wrong; check that the whole token was copied, or ask for a new one (`muster token create`)")
}
