package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"orch/internal/git"
	"orch/internal/merge/attempt"
	"orch/internal/merge/build"
	"orch/internal/merge/problem"
)

// source is the task's work, to the builder.
func (d *drive) source() build.Source {
	return build.Source{Key: d.task.Key, Branch: d.task.Branch}
}

// prepare makes the commit that would land on the target as it is now. The same base, head and method give the same
// commit, so a repeated prepare changes nothing and keeps the result of the test.
func (d *drive) prepare(ctx context.Context) error {
	if d.def.Method != MethodRebase && d.def.Method != MethodFastForward {
		return problem.Of(problem.Method, fmt.Errorf("landing method %q isn't supported", d.def.Method))
	}
	next := d.attempt
	next.Step, next.Method, next.LeaseEpoch = attempt.StepPreparing, d.def.Method, d.right.Epoch()
	next.Wait = 0
	if err := d.write(ctx, next, nil); err != nil {
		return err
	}
	d.h.cfg.failpoint(pointPreparing)
	site, err := d.h.build.Site(ctx, d.def.Repo, d.attempt.Target)
	if err != nil {
		return err
	}
	head, err := d.head(ctx, site)
	if err != nil {
		return err
	}
	if commit, err := d.upstream(ctx, site, head); err != nil || commit != "" {
		return d.already(ctx, commit, err)
	}
	made, err := site.Make(ctx, d.source(), head, git.Method(d.def.Method))
	var conflict *git.ConflictError
	switch {
	case errors.As(err, &conflict):
		return d.conflict(ctx, site.Base, conflict)
	case err != nil:
		return err
	case made.Empty:
		return d.already(ctx, site.Base, nil)
	}
	d.h.cfg.failpoint(pointReplayed)
	next.BaseOld, next.HeadSHA, next.LandSHA, next.LandTree = site.Base, head, made.Commit, made.Tree
	next.Definition = d.def.Test
	next.Step = attempt.StepTesting
	if next.SameKey(d.attempt) && next.EvidenceID != 0 {
		next.Step = attempt.StepReady // tested green before, nothing that counts has changed
	} else {
		next.EvidenceID = 0
	}
	if err := d.write(ctx, next, nil); err != nil {
		return err
	}
	d.prepared = true
	d.h.cfg.failpoint(pointTesting)
	return nil
}

// head is the commit that is to land. A branch that isn't at the commit which passed the gates is refused: that one lands, or
// none. A branch that was published is at what orch itself made of that commit, and is set back before the attempt forgets
// that it did.
func (d *drive) head(ctx context.Context, site *build.Site) (string, error) {
	branch, err := site.Head(ctx, d.source())
	head := d.task.Head
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
	return head, site.SetBack(ctx, d.source(), head, branch)
}

// upstream finds out whether the work is in the target's history already, as what an earlier drive prepared (a
// person may have landed a ready branch) or as it came from its author, and as which commit.
func (d *drive) upstream(ctx context.Context, site *build.Site, head string) (string, error) {
	kept, err := site.Kept(ctx, d.task.Key)
	switch {
	case err != nil:
		return "", err
	case kept != "" && kept == d.attempt.LandSHA:
		return site.Upstream(ctx, kept, head)
	}
	return site.Upstream(ctx, head)
}

// already ends the task without a test or a landing: its work is upstream as commit.
func (d *drive) already(ctx context.Context, commit string, err error) error {
	if err != nil {
		return err
	}
	next := d.attempt
	next.Step, next.LastError = attempt.StepFinalised, ""
	landed := Landed{Commit: commit, Target: next.Target, Upstream: true}
	if err := d.done(ctx, next, landed); err != nil {
		return err
	}
	d.h.log.InfoContext(ctx, "already upstream", append(d.facts(), "commit", commit)...)
	d.h.cfg.failpoint(pointFinalised)
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

// test has exactly the prepared commit tested.
func (d *drive) test(ctx context.Context) error {
	a := d.attempt
	result, err := d.h.cfg.Tester.Test(ctx, d.job, TestRequest{
		TaskID: a.TaskID, TaskKey: d.task.Key, Repo: a.Repo, Stage: d.task.Stage, Round: d.task.Round,
		Commit: a.LandSHA, Tree: a.LandTree, BaseCommit: a.BaseOld,
	})
	if err != nil {
		return untested(err)
	}
	d.h.cfg.failpoint(pointTested)
	if !result.Green {
		feedback := result.Reason
		if result.OutputTail != "" {
			feedback += "\n\n" + result.OutputTail
		}
		return d.giveUp(ctx, Return{Code: problem.TestRed, Reason: result.Reason, Feedback: feedback})
	}
	next := a
	next.Step, next.EvidenceID = attempt.StepReady, result.EvidenceID
	if err := d.write(ctx, next, nil); err != nil {
		return err
	}
	d.h.cfg.failpoint(pointReady)
	return nil
}

// cleanUp removes what the landing kept in the mirror. It is best effort: a rest is overwritten by the next landing
// of the task, or goes with its workspace.
func (d *drive) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	if err := d.h.build.Discard(ctx, d.def.Repo, d.task.Key); err != nil {
		d.h.log.WarnContext(ctx, "land ref not removed", append(d.facts(), "error", err)...)
	}
}
