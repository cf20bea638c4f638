package merge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/attempt"
	"orch/internal/merge/build"
	"orch/internal/merge/lease"
	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// Source is the task's work, to the builder.
func (t Task) Source() build.Source {
	return build.Source{Key: t.Key, Branch: t.Branch, Title: t.Title}
}

// home says whether the task's branch is in the mirror of this data root.
func (d *drive) home() bool {
	return d.task.Root == uuid.Nil || d.task.Root == d.job.Worker().RootID
}

// offer brings the head into the repository, so that whoever can reach it can go on with the landing. It is best effort: what
// stands in the way of it does so in the next step, too.
func (d *drive) offer(ctx context.Context, current *attempt.Attempt) {
	if d.task.Head == "" || !d.home() || d.def.Home || !d.def.Land || !d.task.Land || current != nil && current.Offered {
		return
	}
	offered, err := d.h.build.Offer(ctx, d.def.Repo, d.task.Source(), d.task.Head)
	if err != nil {
		d.h.log.DebugContext(ctx, "head not offered", slog.String("task", d.task.Key), slog.Any("error", err))
	}
	if d.offered = offered; offered {
		d.h.at(pointOffered)
	}
}

// prepare makes the commit that would land on the target as it is now. The same base, head and method give the same
// commit, so a repeated prepare changes nothing and keeps the result of the test.
func (d *drive) prepare(ctx context.Context) error {
	switch git.Method(d.def.Method) {
	case git.FastForward, git.Rebase, git.Merge, git.Squash:
	default:
		return problem.Of(problem.Method, fmt.Errorf("landing method %q isn't supported", d.def.Method))
	}
	next := d.attempt
	next.Step, next.Method, next.LeaseEpoch = attempt.StepPreparing, d.def.Method, d.right.Epoch()
	next.Wait = 0
	if err := d.write(ctx, next, nil); err != nil {
		return err
	}
	d.h.at(pointPreparing)
	if err := d.claim(ctx); err != nil { // before the target is read: who was here before can't move it afterwards
		return err
	}
	d.h.at(pointClaimed)
	site, err := d.h.build.Site(ctx, d.def.Repo, d.attempt.Target)
	if err != nil {
		return err
	}
	head, err := d.head(ctx, site, &next)
	if err != nil {
		return err
	}
	if commit, err := d.upstream(ctx, site, head); err != nil {
		return err
	} else if commit != "" {
		return d.already(ctx, site, head, commit)
	}
	made, err := site.Make(ctx, d.task.Source(), site.Base, head, git.Method(d.def.Method))
	var conflict *git.ConflictError
	var takenBack *build.TakenBackError
	switch {
	case errors.As(err, &conflict):
		return d.conflict(ctx, site.Base, conflict)
	case errors.As(err, &takenBack):
		return d.takenBack(ctx, site.Base, takenBack)
	case err != nil:
		return err
	case made.Empty:
		return d.already(ctx, site, head, site.Base)
	}
	d.h.at(pointReplayed)
	next.BaseOld, next.HeadSHA, next.LandSHA, next.LandTree = site.Base, head, made.Commit, made.Tree
	next.TipSHA, next.TipTree, next.Definition = made.Commit, made.Tree, d.def.Test
	mates, err := d.gather(ctx, site, &next)
	if err != nil {
		return err
	}
	d.h.at(pointGrouped)
	next.Step = attempt.StepTesting
	switch {
	case !next.SameKey(d.attempt):
		next.EvidenceID, next.Reds = 0, 0
	case next.EvidenceID != 0:
		next.Step = attempt.StepReady // tested green before, nothing that counts has changed
	}
	if err := d.writeAll(ctx, next, mates, nil); err != nil {
		return err
	}
	d.prepared = true
	d.h.at(pointTesting)
	return nil
}

// claim marks in the repository that it is this holder's turn. A mark of a later one than the lease says is one of a database
// that was lost since: the lease's epoch is lifted above it, for the next grant.
func (d *drive) claim(ctx context.Context) error {
	if d.h.cfg.Owner == "" {
		return nil
	}
	if err := d.holds(ctx); err != nil {
		return err
	}
	err := d.h.cfg.Forge.Claim(ctx, d.def.Repo, d.attempt.Target, d.claimed())
	var other *forge.ClaimedError
	if !errors.As(err, &other) {
		if err != nil {
			return problem.Of(problem.Claim, err)
		}
		return nil
	}
	err = fenced(ctx, d.job, func(tx pgx.Tx) error { return d.right.RaiseTx(ctx, tx, other.Epoch) })
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", lease.ErrLost, other)
}

func (d *drive) claimed() forge.Claim {
	return forge.Claim{Owner: d.h.cfg.Owner, Epoch: d.right.Epoch()}
}

// head is the commit that is to land. A branch that isn't at the commit which passed the gates is refused: that one lands, or
// none. A branch that was published is at what orch itself made of that commit, and is set back before the attempt forgets
// that it did. Away from the data root that has the branch, the head is what was offered.
func (d *drive) head(ctx context.Context, site *build.Site, next *attempt.Attempt) (string, error) {
	head, source := d.task.Head, d.task.Source()
	offered, err := site.Offered(ctx, source.Key)
	if err != nil {
		return "", err
	}
	next.Offered = head != "" && offered == head
	if !d.home() {
		if !next.Offered {
			return "", fmt.Errorf("%w: the repository has not commit %s of %s at %s", errElsewhere, head, source.Key, build.HeadRef(source.Key))
		}
		return head, nil
	}
	branch, err := site.Head(ctx, source)
	if errors.Is(err, git.ErrNoRef) && next.Offered {
		return head, nil
	}
	if err != nil || head == "" || head == branch {
		return branch, err
	}
	var ours bool
	err = fenced(ctx, d.job, func(tx pgx.Tx) (err error) {
		ours, err = d.h.cfg.Store.MadeFromTx(ctx, tx, d.task.ID, branch, head)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case !ours:
		return "", problem.Of(problem.Branch, fmt.Errorf("the gates passed commit %s, but the branch %s is at commit %s in the mirror %s",
			head, d.task.Branch, branch, site.Dir()))
	}
	return head, site.SetBack(ctx, source, head, branch)
}

// errElsewhere says that what is to land is to be had in the task's own data root only.
var errElsewhere = errors.New("the branch is in another data root")

// sendHome ties the job to the data root that has the branch again: there it is offered anew.
func (d *drive) sendHome(ctx context.Context, err error) error {
	next := d.attempt
	next.Offered, next.LastError, next.Wait = false, problem.NoBranch, d.h.cfg.RetryMin
	d.h.log.WarnContext(ctx, "landing goes back to where its branch is", append(d.facts(), slog.Any("error", err))...)
	return d.end(ctx, next, func(tx pgx.Tx) error {
		if err := d.job.PinRootTx(ctx, tx, d.task.Root); err != nil {
			return err
		}
		return d.job.ReleaseTx(ctx, tx, queue.Release{After: next.Wait, WaitingFor: problem.NoBranch})
	})
}

// upstream finds out whether the work is in the target already: in its history, as what an earlier drive prepared (a
// person may have landed a ready branch) or as it came from its author, and as which commit; or else as other commits that
// change the same, e.g. one that a person squashed, which the method's replay may take for a conflict. What package
// resting finds is found here.
func (d *drive) upstream(ctx context.Context, site *build.Site, head string) (string, error) {
	kept, err := site.Kept(ctx, d.task.Key)
	if err != nil {
		return "", err
	}
	commits := []string{head}
	if kept != "" && kept == d.attempt.LandSHA {
		commits = []string{kept, head}
	}
	return site.Already(ctx, commits...)
}

// already ends the task without a test or a landing: its work is upstream as commit, or there is none, which the target has in the
// same way.
func (d *drive) already(ctx context.Context, site *build.Site, head, commit string) error {
	next := d.attempt
	next.Step, next.LastError = attempt.StepFinalised, ""
	landed := Landed{Commit: commit, Target: next.Target, Upstream: true}
	if commit == site.Base { // as which the target has what isn't in its history
		changes, err := site.Changes(ctx, head)
		if err != nil {
			return err
		}
		if !changes {
			landed = Landed{Target: next.Target, Nothing: true}
		}
	}
	if err := d.done(ctx, next, landed); err != nil {
		return err
	}
	if landed.Nothing {
		d.h.log.InfoContext(ctx, "nothing to land", append(d.facts(), "commit", head)...)
	} else {
		d.h.log.InfoContext(ctx, "already upstream", append(d.facts(), "commit", commit)...)
	}
	d.h.at(pointFinalised)
	d.cleanUp(ctx)
	return nil
}

func (d *drive) conflict(ctx context.Context, base string, c *git.ConflictError) error {
	reason := fmt.Sprintf("conflict with %s in %s", d.attempt.Target, strings.Join(c.Paths, ", "))
	feedback := fmt.Sprintf("The work conflicts with the current %s in:\n\n%s\n\nThe current %s is commit %s, which this clone "+
		"has: rebase the branch onto it (git rebase %s) and resolve the conflicts.\n",
		d.attempt.Target, strings.Join(c.Paths, "\n"), d.attempt.Target, base, base)
	return d.giveUp(ctx, Return{Code: problem.Conflict, Reason: reason, Feedback: feedback})
}

func (d *drive) takenBack(ctx context.Context, base string, t *build.TakenBackError) error {
	feedback := fmt.Sprintf("The work stands on commit %s, which %s doesn't have any more: somebody took it back, and it mustn't return "+
		"with this work. The current %[2]s is commit %[3]s, which this clone has: bring nothing but the work's own commits onto it "+
		"(git rebase --onto %[3]s %[1]s).\n", t.Commit, t.Target, base)
	return d.giveUp(ctx, Return{Code: problem.Conflict, Reason: t.Error(), Feedback: feedback})
}

// giveUp sends the task back to its author.
func (d *drive) giveUp(ctx context.Context, r Return) error {
	next := d.attempt
	next.Step, next.LastError = attempt.StepReturned, r.Code
	err := d.end(ctx, next, func(tx pgx.Tx) error {
		return d.h.cfg.Tasks.ReturnTx(ctx, tx, d.job, d.task, r)
	})
	if err != nil {
		return err
	}
	d.h.log.InfoContext(ctx, "landing returned", append(d.facts(), "code", r.Code)...)
	d.cleanUp(ctx)
	return nil
}

// test has exactly the prepared commit tested, or that of the group.
func (d *drive) test(ctx context.Context) error {
	a := d.attempt
	result, err := d.h.cfg.Tester.Test(ctx, d.job, TestRequest{
		TaskID: a.TaskID, TaskKey: d.task.Key, Repo: a.Repo, Stage: d.task.Stage, Round: d.task.Round,
		Commit: a.TipSHA, Tree: a.TipTree, BaseCommit: a.BaseOld,
	})
	if err != nil {
		return untested(err)
	}
	d.h.at(pointTested)
	switch {
	case !result.Green && len(d.mates) > 0:
		return d.red(ctx)
	case !result.Green:
		feedback := result.Reason
		if result.OutputTail != "" {
			feedback += "\n\n" + result.OutputTail
		}
		return d.giveUp(ctx, Return{Code: problem.TestRed, Reason: result.Reason, Feedback: feedback})
	}
	next := a
	next.Step, next.EvidenceID = attempt.StepReady, result.EvidenceID
	err = d.writeAll(ctx, next, d.each(func(m *mate) { m.Step, m.EvidenceID = attempt.StepReady, result.EvidenceID }), func(tx pgx.Tx) error {
		if !a.Offered {
			return nil
		}
		return d.job.FreeRootTx(ctx, tx) // the run is over that tied it to this root
	})
	if err != nil {
		return err
	}
	d.h.at(pointReady)
	return nil
}

// cleanUp removes what the landing kept in the mirror, and what was offered once it is landed: work that goes back to its
// author is begun from there, in whatever data root. It is best effort: a rest is overwritten by the next landing of the task,
// or goes when the task has ended.
func (d *drive) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err := d.h.build.Discard(ctx, d.def.Repo, d.task.Key); err != nil {
		d.h.log.WarnContext(ctx, "land ref not removed", append(d.facts(), "error", err)...)
	}
	if !d.attempt.Offered || d.attempt.Step != attempt.StepFinalised {
		return
	}
	if err := d.h.build.Withdraw(ctx, d.def.Repo, d.task.Key); err != nil {
		d.h.log.WarnContext(ctx, "head not taken back", append(d.facts(), "error", err)...)
	}
}

const cleanUpTimeout = 5 * time.Second
