package reaper

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"orch/internal/lifespan"
	"orch/internal/queue"
)

// takeMany gives on together what a page holds of jobs of dead workers that need nothing of their own: no run, no cancel, and
// not so many recoveries that they would fail. It returns the others, and those that couldn't be given on so: each of them is
// for itself, so that one that is bad or locked keeps nobody else. Workers die with few jobs or with thousands, and the first
// claim after a start waits for them.
func (r *Reaper) takeMany(ctx context.Context, jobs []queue.Seen, beat func(), dead func(queue.Seen) bool) (others []queue.Seen) {
	others = jobs
	_ = lifespan.Guard(r.log, "take many jobs", func() error { //nolint:contextcheck // a guard takes no context
		var alike, rest []queue.Seen
		for _, s := range jobs {
			if s.RunID == nil && s.CancelRequestedAt == nil && s.Recoveries < queue.MaxRecoveries && dead(s) {
				alike = append(alike, s)
			} else {
				rest = append(rest, s)
			}
		}
		if len(alike) < 2 {
			return nil
		}
		all := r.describeMany(ctx, alike)
		taken, left, err := r.cfg.Queue.TakeMany(ctx, alike, func(ctx context.Context, tx pgx.Tx, taken []queue.Seen) error {
			return r.tellTx(ctx, tx, pick(all, taken)...)
		})
		others = slices.Concat(rest, left)
		if r.cfg.Counted != nil {
			r.cfg.Counted(len(taken))
		}
		for _, reaped := range pick(all, taken) { // each (ORCH-065 FR-4.2)
			r.log.WarnContext(ctx, "job reaped", attrs(reaped)...)
		}
		return err
	})
	beat()
	return others
}

// describeMany says whose jobs they are.
func (r *Reaper) describeMany(ctx context.Context, jobs []queue.Seen) map[int64]*Reaped {
	all, tasks := make(map[int64]*Reaped, len(jobs)), []int64(nil)
	for _, s := range jobs {
		reaped := reapedOf(found{Seen: s}, Verdict{Release, ReasonWorkerDead, false})
		reaped.Outcome = string(queue.StateQueued)
		if all[s.ID] = &reaped; s.TaskID != nil {
			tasks = append(tasks, *s.TaskID)
		}
	}
	r.named(ctx, tasks, func(subjects map[int64]Subject) {
		for _, s := range jobs {
			if s.TaskID != nil {
				all[s.ID].name(subjects[*s.TaskID])
			}
		}
	})
	return all
}

func pick(all map[int64]*Reaped, jobs []queue.Seen) []Reaped {
	picked := make([]Reaped, len(jobs))
	for n, s := range jobs {
		picked[n] = *all[s.ID]
	}
	return picked
}
