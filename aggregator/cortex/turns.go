package cortex

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cortexproject/cortex/pkg/util/validation"
	"github.com/prometheus/prometheus/promql"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"muster.dev/muster/internal/prommeter"
	"muster.dev/muster/internal/turns"
	"muster.dev/muster/internal/wire"
)

const (
	// maxQueries run at once, of which a tenant has half at most.
	maxQueries = 16
	// queryTimeout bounds a query, and before it the wait for its turn.
	queryTimeout = time.Minute
)

// queryTurns has queries share the processors, as a regional's engines do: Cortex knows how
// many run and not how long each does, nor whose they are.
type queryTurns struct {
	slots      *turns.Slots // of queries under way, for what they hold in memory
	processors *turns.Processors
}

func newQueryTurns() queryTurns {
	return queryTurns{turns.New(maxQueries, maxQueries-2, maxQueries/2), turns.NewProcessors(0)}
}

type turnKey struct{}

// each gives a query its turn, which pass lets others have.
func (q queryTurns) each(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, "/prometheus/api/v1/")
		if !ok || path == "read" { // that one reads its parts side by side, and makes nothing of them
			next.ServeHTTP(w, r)
			return
		}
		class := turns.Class{Platform: r.Header.Get(wire.HeaderPurpose) == wire.PurposeHealth, Tenant: r.Header.Get(wire.OrgHeader)}
		waiting, cancel := context.WithTimeout(r.Context(), queryTimeout)
		defer cancel()
		release, err := q.slots.Acquire(waiting, class)
		if err != nil {
			http.Error(w, "the query was given up before its turn came", http.StatusServiceUnavailable)
			return
		}
		defer release()
		t, err := q.processors.Begin(waiting, class)
		if err != nil {
			http.Error(w, "the query was given up before its turn came", http.StatusServiceUnavailable)
			return
		}
		defer t.End()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), turnKey{}, t)))
	})
}

// pass is for prommeter.
func (queryTurns) pass(ctx context.Context) error {
	if t, ok := ctx.Value(turnKey{}).(*turns.Turn); ok {
		return t.Pass(ctx)
	}
	return ctx.Err()
}

// answered makes of an error what Cortex answers with a status that says whose fault it is.
// What it does not know it answers with 500: what a query may not read, and that it took too
// long, as well.
func answered(err error) error {
	var much prommeter.Excess
	switch code := status.Code(err); {
	case err == nil:
		return nil
	case errors.As(err, &much):
		return validation.LimitError(much)
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return promql.ErrQueryTimeout("reading of series")
	case errors.Is(err, context.Canceled), code == codes.Canceled:
		return promql.ErrQueryCanceled("reading of series")
	}
	return err
}
