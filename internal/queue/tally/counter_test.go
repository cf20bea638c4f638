package tally_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
	"orch/internal/testdb"
)

func TestCountersAddUpWhatWasCommitted(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	before, err := tally.NewStore(pool).Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	undone := errors.New("undone")
	for _, failure := range []error{nil, undone, nil} {
		err := db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			return errors.Join(tally.AddCounterTx(t.Context(), tx, "one", 2), tally.AddCounterTx(t.Context(), tx, "other", 1), failure)
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
	}
	counters, err := tally.NewStore(pool).Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queuetest.Equal(t, "one", counters["one"], 4)
	queuetest.Equal(t, "other", counters["other"], 2)
	queuetest.Equal(t, "names", len(counters)-len(before), 2)
}
