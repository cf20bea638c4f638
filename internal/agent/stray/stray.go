// Package stray ends runs that live although the table says that they have ended: their host was given up while it was cut
// off, and another one does their work now. Of one whose shim died meanwhile, what it left is ended.
package stray

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/agent/ledger"
	"orch/internal/agent/sight"
	"orch/internal/lifespan"
	"orch/internal/process"
)

// End ends the strays of the finder's root. One that can't be ended keeps no other from it.
func End(ctx context.Context, pool *pgxpool.Pool, f sight.Finder, log *slog.Logger) error {
	open, unseen := f.Unrecorded()
	if len(open) == 0 {
		return unseen
	}
	rows, err := pool.Query(ctx, `select id, ended = $3 from runs where id = any($1) and root_id = $2 and state = 'finished'`,
		open, f.Root, process.WhyHostDead)
	if err != nil {
		return fmt.Errorf("look for runs that were given up: %w", err)
	}
	strays, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stray])
	if err != nil {
		return fmt.Errorf("look for runs that were given up: %w", err)
	}
	failed := []error{unseen}
	for _, s := range strays {
		failed = append(failed, lifespan.Guard(log, "stray run", func() error { return s.end(ctx, f, log) })) //nolint:contextcheck // a guard takes no context
	}
	return errors.Join(failed...)
}

// stray is a run without a record that has ended by the table.
type stray struct {
	ID      uuid.UUID
	GivenUp bool // unlike one whose shim was found dead, and what that left ended
}

func (s stray) end(ctx context.Context, f sight.Finder, log *slog.Logger) error {
	st, err := f.Look(ledger.Run{ID: s.ID, State: ledger.StateIntended})
	left := s.GivenUp && st.Status == process.StatusDead
	if err != nil || st.Status != process.StatusAlive && !left {
		return err //nolint:wrapcheck // it says what it is
	}
	shim, err := process.OpenRun(f.Path(s.ID))
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	log.WarnContext(ctx, "a run is ended that was given up while this host was cut off", slog.String("run_id", s.ID.String()))
	if !left {
		return errors.Join(shim.Stop(ctx, process.WhyOrphaned), process.Wake(st.PIDs.Shim))
	}
	if err := shim.EndRemains(ctx); err != nil {
		return err //nolint:wrapcheck // as above
	}
	return shim.Settle(process.Exit{Why: process.WhyOrphaned, Error: process.ErrShimDead.Error()}) //nolint:wrapcheck // as above
}
