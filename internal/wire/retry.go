package wire

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Later is the gRPC error of who has no time for a request now: UNAVAILABLE, with a
// google.rpc.RetryInfo that says after how long to ask again.
func Later(after time.Duration, text string) error {
	st := status.New(codes.Unavailable, text)
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
		st = with
	}
	return st.Err()
}

// maxRetryAfter bounds what a peer can ask for.
const maxRetryAfter = 10 * time.Minute

// RetryAfter is what the RetryInfo of a gRPC error says, at most ten minutes; false: it
// has none.
func RetryAfter(err error) (time.Duration, bool) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxRetryAfter), true
		}
	}
	return 0, false
}
