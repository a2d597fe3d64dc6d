package console

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"muster.dev/muster/internal/turns"
)

const (
	// heavyAtOnce requests, half of which may be one tenant's, have a turn at one time: those
	// with large texts or long lists, which take a hundred megabytes for a moment.
	heavyAtOnce = 4
	// uploadFor is how long a body may take to come meanwhile.
	uploadFor = 10 * time.Second
)

func newHeavy() *turns.Slots { return turns.New(heavyAtOnce, heavyAtOnce, heavyAtOnce/2) }

// turn waits until it is the turn of these payers (see readable), and reads the body. If there
// is no error, end must follow, when what was read is let go.
func (c *Console) turn(w http.ResponseWriter, cl *call, payers []string) (end func(), err error) {
	who := strings.Join(payers, ",")
	if end, err = c.heavy.Acquire(cl.Context(), turns.Class{Platform: who == "", Tenant: who}); err != nil {
		return nil, unavailable(nil, "as many large requests of your tenant are under way as may be at once; try again in a few seconds")
	}
	if cl.Method == http.MethodGet || cl.Method == http.MethodHead {
		return end, nil
	}
	// Not every writer has a connection; the server's own limit is longer.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(uploadFor))
	b, err := io.ReadAll(cl.Body)
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		end()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, invalid("body", "did not come within %s", uploadFor)
		}
		return nil, err
	}
	cl.Body = io.NopCloser(bytes.NewReader(b))
	return end, nil
}
