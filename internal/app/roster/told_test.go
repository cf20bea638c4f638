package roster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/queue/pause"
	"orch/internal/stage"
	"orch/internal/testdb"
)

// Only a pause that holds is told, and one that can't be told isn't begun.
func TestPauseIsToldInItsTransaction(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	var told []pause.Pause
	var refused error
	r := New(Config{OnPauseTx: func(_ context.Context, _ pgx.Tx, p pause.Pause) error {
		told = append(told, p)
		return refused
	}})
	meet := func(code string, until time.Time) error {
		return db.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			return r.PauseTx(t.Context(), tx, stage.Pause{Agent: "coder", Code: code, Reason: "it said so", Until: until})
		})
	}
	refused = errors.New("refused")
	if err := meet("auth", time.Time{}); !errors.Is(err, refused) {
		t.Error(err)
	}
	pauses, err := pause.NewStore(pool).AgentPauses(t.Context(), []string{"coder"})
	if err != nil || len(pauses) > 0 {
		t.Fatalf("%+v, %v", pauses, err)
	}
	refused, told = nil, nil
	later := time.Now().Add(5 * time.Hour)
	for _, err := range []error{meet("quota", later), meet("quota", later.Add(-time.Hour)), meet("auth", time.Time{}), meet("auth", time.Time{}), meet("quota", later)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 2 || told[0].Code != "quota" || !told[0].Until.Equal(later) || told[1].Code != "auth" || told[1].Until != nil {
		t.Errorf("%+v", told)
	}
}
