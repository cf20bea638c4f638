package merge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"orch/internal/forge"
	"orch/internal/merge/attempt"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
)

// whereabouts is what the repository says about an open intent.
type whereabouts string

const (
	isLanded  whereabouts = "landed"    // tip_sha is in the target's history: land_sha, and what is stacked on it
	isAlone   whereabouts = "alone"     // only land_sha is
	isAtBase  whereabouts = "at_base"   // the target is still at base_old
	isElse    whereabouts = "elsewhere" // someone else moved it: what was tested doesn't fit any more
	isUnknown whereabouts = ""
)

// intend writes the intent. The task's row is locked in the same transaction, so that a cancel comes either before,
// and then nothing is landed, or after, and then it is refused. The intents of a group are one.
func (d *drive) intend(ctx context.Context) error {
	next := d.attempt
	next.Step, next.LeaseEpoch = attempt.StepLanding, d.right.Epoch()
	mates := d.each(func(m *mate) { m.Step, m.LeaseEpoch = attempt.StepLanding, d.right.Epoch() })
	if err := d.writeAll(ctx, next, mates, func(tx pgx.Tx) error { return d.intendTx(ctx, tx) }); err != nil {
		return err
	}
	d.intended = true
	d.h.at(pointIntended)
	return nil
}

// land brings an open intent to its end: by looking, then by the compare-and-swap, then by looking again, because
// no answer of a repository proves what happened to it.
func (d *drive) land(ctx context.Context) error {
	if !d.intended { // an earlier drive wrote the intent: it may have come further than it could record
		if err := d.claim(ctx); err != nil {
			return err
		}
		where, err := d.look(ctx)
		if err != nil {
			return err
		}
		if where != isAtBase {
			return d.resolve(ctx, where, nil)
		}
	}
	d.intended = false
	if err := d.holds(ctx); err != nil {
		return err
	}
	mirror, err := d.h.build.Dir(ctx, d.def.Repo)
	if err != nil {
		return err
	}
	d.h.at(pointLanding)
	result, answer := d.h.cfg.Forge.Land(ctx, d.def.Repo, forge.Landing{
		Mirror: mirror, Base: d.attempt.Target, Old: d.attempt.BaseOld, New: d.attempt.TipSHA, Key: d.task.Key,
		Claim: d.claimed(), Verify: d.verify(),
	})
	d.h.at(pointMoved)
	where, err := d.look(ctx)
	switch {
	case err != nil:
		return errors.Join(err, answer)
	case where == isAtBase && errors.Is(answer, forge.ErrClaimed):
		return fmt.Errorf("%w: %w", lease.ErrLost, answer)
	case where == isAtBase && answer != nil && !result.Certain && !errors.Is(answer, forge.ErrBaseMoved):
		return problem.Of(problem.Land, answer) // it may land yet: the intent stays
	}
	return d.resolve(ctx, where, answer)
}

// holds asks for both leases just before an effect outside the database.
func (d *drive) holds(ctx context.Context) error {
	if err := d.job.Check(ctx); err != nil {
		return err
	}
	return d.right.Renew(ctx)
}

// look asks the real repository what became of the intent.
func (d *drive) look(ctx context.Context) (whereabouts, error) {
	a := d.attempt
	for _, commit := range slices.Compact([]string{a.TipSHA, a.LandSHA}) {
		landed, err := d.h.cfg.Forge.Landed(ctx, d.def.Repo, a.Target, commit)
		if err != nil {
			return isUnknown, problem.Of(problem.Look, err)
		}
		if landed && commit == a.TipSHA {
			return isLanded, nil
		}
		if landed {
			return isAlone, nil
		}
	}
	site, err := d.h.build.Site(ctx, d.def.Repo, a.Target)
	if err != nil {
		return isUnknown, err
	}
	kept, err := site.Kept(ctx, d.tipKey())
	if err != nil {
		return isUnknown, err
	}
	if site.Base != a.BaseOld || kept != a.TipSHA {
		return isElse, nil // also when this mirror has lost what was tested: it is made again
	}
	return isAtBase, nil
}

// resolve writes what a look found. answer is what the forge said, if it was asked.
func (d *drive) resolve(ctx context.Context, where whereabouts, answer error) error {
	next := d.attempt
	switch {
	case where == isLanded, where == isAlone:
		var mates []mate
		if where == isLanded {
			mates = d.each(func(m *mate) { m.Step = attempt.StepLanded })
		}
		next.Step, next.LastError = attempt.StepLanded, ""
		if err := d.writeAll(ctx, next, mates, nil); err != nil {
			return err
		}
		d.h.at(pointLanded)
		return nil
	case where == isElse, errors.Is(answer, forge.ErrBaseMoved), errors.Is(answer, forge.ErrChanged):
		return d.again(ctx)
	}
	// Certainly not landed. The intent is withdrawn, so that the task can be cancelled while the problem lasts.
	next.Step = attempt.StepReady
	if err := d.writeAll(ctx, next, d.each(func(m *mate) { m.Step = attempt.StepReady }), nil); err != nil {
		return err
	}
	if answer == nil {
		return problem.Of(problem.NotLanded, errors.New("the repository took the landing and doesn't have it"))
	}
	return problem.Of(problem.Land, answer)
}

// again goes back to the beginning after the base moved, without giving up the lease.
func (d *drive) again(ctx context.Context) error {
	next := d.attempt
	next.Moved++
	next.Step, next.LastError, next.Group = attempt.StepQueued, problem.BaseMoved, 0
	mates := d.each(func(m *mate) { m.Step, m.Group = attempt.StepQueued, 0 })
	if err := d.writeAll(ctx, next, mates, nil); err != nil {
		return err
	}
	d.prepared, d.mates = false, nil
	if next.Moved < d.h.cfg.MaxMoved {
		return nil
	}
	return d.park(ctx, next, &problem.StepError{
		Code: problem.BaseMoved, Err: fmt.Errorf("%s kept moving between test and landing", next.Target),
	})
}

// finish lets a checkout of the target follow, once for the group, and ends the landing.
func (d *drive) finish(ctx context.Context) error {
	a := d.attempt
	if !a.Refreshed {
		if err := d.h.cfg.Forge.Refresh(ctx, d.def.Repo, a.Target, a.BaseOld, a.TipSHA); err != nil {
			return problem.Of(problem.Refresh, err)
		}
		d.h.at(pointRefreshed)
		a.Refreshed = true
		if len(d.mates) > 0 {
			if err := d.writeAll(ctx, a, d.each(func(m *mate) { m.Refreshed = true }), nil); err != nil {
				return err
			}
			d.h.at(pointRefreshNoted)
		}
		d.attempt = a
	}
	return d.finalise(ctx, "")
}

// finalise ends task, attempt, job and lease together.
func (d *drive) finalise(ctx context.Context, flaw string) error {
	next := d.attempt
	next.Step, next.LastError = attempt.StepFinalised, flaw
	landed := Landed{Commit: next.LandSHA, Target: next.Target}
	if err := d.done(ctx, next, landed); err != nil {
		return err
	}
	d.h.log.InfoContext(ctx, "landed", append(d.facts(), "commit", landed.Commit)...)
	d.h.at(pointFinalised)
	d.cleanUp(ctx)
	return nil
}

// done writes that the task's work is on its target.
func (d *drive) done(ctx context.Context, next attempt.Attempt, landed Landed) error {
	return d.end(ctx, next, func(tx pgx.Tx) error {
		ended, err := d.h.cfg.Tasks.LandedTx(ctx, tx, d.job, d.task, landed)
		if err != nil || ended {
			return err
		}
		return d.job.CompleteTx(ctx, tx)
	})
}

// publish leaves the tested commit in the repository under the task's branch name, for a person to land. The attempt
// stays open at ready, out of the line: a later merge job finds that the person has landed it, or lands it.
func (d *drive) publish(ctx context.Context) error {
	if err := d.holds(ctx); err != nil {
		return err
	}
	d.h.at(pointPublishing)
	mirror, err := d.h.build.Put(ctx, d.def.Repo, d.task.Source(), d.attempt.LandSHA)
	if err != nil {
		return err
	}
	if err := d.h.cfg.Forge.Publish(ctx, d.def.Repo, mirror, d.task.Source().BranchRef()); err != nil {
		return problem.Of(problem.Publish, err)
	}
	d.h.at(pointPublished)
	next := d.attempt
	next.LastError = ""
	ready := Ready{Commit: next.LandSHA, Branch: d.task.Branch, Target: next.Target}
	err = d.end(ctx, next, func(tx pgx.Tx) error {
		if err := d.h.cfg.Tasks.ReadyTx(ctx, tx, d.job, d.task, ready); err != nil {
			return err
		}
		return d.job.CompleteTx(ctx, tx)
	})
	if err != nil {
		return err
	}
	d.h.log.InfoContext(ctx, "ready for a person to land", append(d.facts(), "commit", ready.Commit)...)
	return nil
}
