package queue_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue"
)

func TestLatestIsTheNewestOfItsName(t *testing.T) {
	t.Parallel()
	b := newBench(t, queue.Config{})
	set := func(name string, job int, failure error) error {
		return db.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			if err := queue.SetLatestTx(t.Context(), tx, name, map[string]int{"job_id": job}); err != nil {
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
	latest, err := b.q.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "last reaped", string(latest["last_reaped"].Data), `{"job_id": 2}`)
	equal(t, "last repaired", string(latest["last_repaired"].Data), `{"job_id": 7}`)
	equal(t, "order", latest["last_repaired"].At.After(latest["last_reaped"].At), true)
}
