package view_test

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"orch/internal/app/view"
	"orch/internal/queue/queuetest"
	"orch/internal/root"
	"orch/internal/testdb"
)

// A job that is tied to another data root says where that is: no slot that becomes free here helps it.
func TestGetTask_Elsewhere(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	sources, _ := sourcesOn(t, pool)
	own, other := queuetest.Root(t, pool), queuetest.Root(t, pool)
	sources.Root = own
	sources.Sighting = func(ctx context.Context, id uuid.UUID) (root.Sighted, bool, error) {
		return root.Sighting(ctx, pool, id)
	}
	created := taskWithJob(t, sources, "x")
	for _, c := range []struct {
		pinned any
		tied   bool
	}{{nil, false}, {own, false}, {other, true}} {
		if _, err := pool.Exec(t.Context(), `update jobs set pinned_root = $1`, c.pinned); err != nil {
			t.Fatal(err)
		}
		detail, err := view.Tasks{Sources: sources}.GetTask(t.Context(), created.Key)
		if err != nil {
			t.Fatal(err)
		}
		where := detail.Elsewhere
		if c.tied != (where != nil) || where != nil && (where.ID != other || where.Host == "" || where.Path == "" || where.SeenAt.IsZero()) {
			t.Errorf("tied to %v: elsewhere %+v", c.pinned, where)
		}
	}
}
