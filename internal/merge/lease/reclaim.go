package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"orch/internal/db"
	"orch/internal/lifespan"
	"orch/internal/queue/tally"
)

// CounterReclaimed counts the merge leases that were taken from their holders.
const CounterReclaimed = "lease_reclaimed_total"

// Why a merge lease was taken from its holder.
const (
	ReasonJobEnded    = "job_ended"    // its job doesn't run under the recorded epoch
	ReasonExpired     = "ttl_expired"  // not renewed within the time to live
	ReasonProcessDead = "process_dead" // its process is gone
)

// Reclaimed is a lease that was taken from its holder.
type Reclaimed struct {
	Lease

	Reason string
}

// Reclaim frees the leases whose holder is dead, whose job doesn't run, or which weren't renewed in time, and wakes
// who is next. verdict judges a holder's process; only Dead has a consequence. It touches no repository. Each lease
// is a unit of its own: an error with one doesn't keep the others, and is returned with what was reclaimed.
func (s *Store) Reclaim(ctx context.Context, verdict func(Holder) Verdict) ([]Reclaimed, error) {
	states, err := s.leaseStates(ctx, s.pool, `l.job_id is not null`)
	if err != nil {
		return nil, err
	}
	var done []Reclaimed
	var failed []error
	for _, seen := range states {
		var reclaimed *Reclaimed
		err := lifespan.Guard(s.log, "merge lease", func() error { //nolint:contextcheck // a guard takes no context
			dead := verdict(seen.Holder) == Dead
			if !dead && !seen.free() {
				return nil
			}
			var err error
			reclaimed, err = s.reclaim(ctx, seen, dead)
			return err
		})
		if err != nil {
			failed = append(failed, fmt.Errorf("reclaim merge lease of %s %s: %w", seen.Repo, seen.Target, err))
		}
		if reclaimed != nil {
			s.Warn(ctx, *reclaimed)
			done = append(done, *reclaimed)
		}
	}
	return done, errors.Join(failed...)
}

// reclaim frees one lease, if it is still as it was seen. A dead process needs no more proof than the epoch; the
// other reasons are looked at again under the lock, since a holder may just have renewed.
func (s *Store) reclaim(ctx context.Context, seen leaseState, dead bool) (*Reclaimed, error) {
	var reclaimed *Reclaimed
	err := db.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		reclaimed = nil
		now, err := s.lockLeaseTx(ctx, tx, seen.Repo, seen.Target)
		if err != nil {
			return err
		}
		if !now.held() || now.Epoch != seen.Epoch || !dead && !now.free() {
			return nil
		}
		reason := ReasonProcessDead
		if !dead {
			reason = now.reason()
		}
		if _, err := tx.Exec(ctx, freeLease+` where repo = $1 and target = $2`, seen.Repo, seen.Target); err != nil {
			return fmt.Errorf("free merge lease: %w", err)
		}
		reclaimed = &Reclaimed{Lease: now.Lease, Reason: reason}
		if err := s.takenTx(ctx, tx, *reclaimed); err != nil {
			return err
		}
		return s.WakeTx(ctx, tx, seen.Repo, seen.Target, 0)
	})
	if err != nil {
		return nil, err
	}
	return reclaimed, nil
}

// takenTx counts and tells of a lease that is taken from its holder in tx.
func (s *Store) takenTx(ctx context.Context, tx pgx.Tx, r Reclaimed) error {
	if err := tally.AddCounterTx(ctx, tx, CounterReclaimed, 1); err != nil {
		return fmt.Errorf("count reclaimed merge lease: %w", err)
	}
	if s.tell == nil {
		return nil
	}
	if err := s.tell(ctx, tx, r); err != nil {
		return fmt.Errorf("tell of reclaimed merge lease: %w", err)
	}
	return nil
}

// Warn tells an operator of a lease that was taken from its holder.
func (s *Store) Warn(ctx context.Context, r Reclaimed) {
	run := ""
	if r.RunID != nil {
		run = r.RunID.String()
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "merge lease reclaimed",
		slog.String("repo", r.Repo), slog.String("target", r.Target), slog.String("branch", r.Branch),
		slog.Int("pid", r.Holder.PID), slog.String("host", r.Holder.Host), slog.String("task", r.Task),
		slog.Int64("job_id", r.JobID), slog.String("run_id", run), slog.Float64("age_s", r.Age.Seconds()),
		slog.String("reason", r.Reason))
}
