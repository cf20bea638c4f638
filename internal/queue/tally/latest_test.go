package tally_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"orch/internal/db"
	"orch/internal/queue/queuetest"
	"orch/internal/queue/tally"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLatestIsTheNewestOfItsName(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	set := func(name string, job int, failure error) error {
		return db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if err := tally.SetLatestTx(t.Context(), tx, name, map[string]int{"job_id": job}); err != nil {
				return err
			}
			return failure
		})
	}
	for job := range 3 {
		if err := set("last_reaped", job, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := set("last_repaired", 7, nil); err != nil {
		t.Fatal(err)
	}
	if err := set("last_reaped", 9, errors.New("broken")); err == nil {
		t.Fatal("the transaction went on")
	}
	latest, err := tally.NewStore(pool).Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queuetest.Equal(t, "last reaped", string(latest["last_reaped"].Data), `{"job_id": 2}`)
	queuetest.Equal(t, "last repaired", string(latest["last_repaired"].Data), `{"job_id": 7}`)
	queuetest.Equal(t, "order", latest["last_repaired"].At.After(latest["last_reaped"].At), true)
}
