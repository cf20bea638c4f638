package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/process"
)

// EndStrays ends runs of this root that live although the table says that they have ended: this host was given up while it
// was cut off, and another one does their work now.
func (r *Runs) EndStrays(ctx context.Context) error {
	open, unseen := r.unrecorded()
	if len(open) == 0 {
		return unseen
	}
	rows, err := r.cfg.Pool.Query(ctx, `select id from runs where id = any($1) and root_id = $2 and state = 'finished'`, open, r.cfg.RootID)
	if err != nil {
		return fmt.Errorf("look for runs that were given up: %w", err)
	}
	strays, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("look for runs that were given up: %w", err)
	}
	failed := []error{unseen}
	for _, id := range strays {
		failed = append(failed, r.endStray(ctx, id))
	}
	return errors.Join(failed...)
}

func (r *Runs) endStray(ctx context.Context, id uuid.UUID) error {
	shim, err := process.OpenRun(r.dir(id))
	if errors.Is(err, process.ErrNoRun) {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := shim.State()
	if err != nil || st.Status != process.StatusAlive {
		return err
	}
	r.log.WarnContext(ctx, "a run is ended that was given up while this host was cut off", slog.String("run_id", id.String()))
	return errors.Join(shim.Stop(ctx, process.WhyOrphaned), process.Wake(st.PIDs.Shim))
}

// unrecorded lists the run directories without a record of the end.
func (r *Runs) unrecorded() ([]uuid.UUID, error) {
	entries, err := os.ReadDir(r.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list run directories: %w", err)
	}
	var open []uuid.UUID
	var failed []error // one that can't be looked into hides no other
	for _, entry := range entries {
		id, err := uuid.Parse(entry.Name())
		if err != nil {
			continue
		}
		recorded, err := process.Recorded(r.dir(id))
		failed = append(failed, err)
		if err == nil && !recorded {
			open = append(open, id)
		}
	}
	return open, errors.Join(failed...)
}
