package wire

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		err  error
		want time.Duration
		ok   bool
	}{
		{Later(3*time.Second, "busy"), 3 * time.Second, true},
		{fmt.Errorf("register: %w", Later(time.Second, "busy")), time.Second, true},
		{Later(time.Hour, "busy"), maxRetryAfter, true},
		{Later(-time.Second, "busy"), 0, true},
		{status.Error(codes.Unavailable, "busy"), 0, false},
		{errors.New("other"), 0, false},
		{nil, 0, false},
	} {
		if d, ok := RetryAfter(c.err); d != c.want || ok != c.ok {
			t.Errorf("%v: %s, %t; want %s, %t", c.err, d, ok, c.want, c.ok)
		}
	}
	if err := Later(time.Second, "busy"); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "busy" {
		t.Errorf("%v", err)
	}
}
