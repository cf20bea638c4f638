package merge

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"orch/internal/git"
)

// landRef keeps the commit that is to be landed, and with it what a test's checkout needs, from git's clean-up.
func landRef(t Task) string { return "refs/orch/land/" + t.Key }

// branchRef is the task's branch in the mirror.
func branchRef(t Task) string { return "refs/heads/" + t.Branch }

// prepare makes the commit that would land on the target as it is now. The same base, head and method give the same
// commit, so a repeated prepare changes nothing and keeps the result of the test.
func (d *drive) prepare(ctx context.Context) error {
	if d.def.Method != MethodRebase && d.def.Method != MethodFastForward {
		return failed(CodeMethod, fmt.Errorf("landing method %q isn't supported", d.def.Method))
	}
	next := d.attempt
	next.Step, next.Method, next.LeaseEpoch = StepPreparing, d.def.Method, d.right.Epoch()
	next.Wait = 0
	if err := d.write(ctx, next, nil); err != nil {
		return err
	}
	d.h.cfg.failpoint(pointPreparing)
	m, base, head, err := d.fetch(ctx)
	if err != nil {
		return err
	}
	if commit, err := d.upstream(ctx, m, base, head); err != nil || commit != "" {
		return d.already(ctx, commit, err)
	}
	made, err := m.Replay(ctx, base, head, d.h.cfg.Committer)
	var conflict *git.ConflictError
	switch {
	case errors.As(err, &conflict):
		return d.conflict(ctx, base, conflict)
	case err != nil:
		return failed(CodeReplay, err)
	case made.Empty:
		return d.already(ctx, base, nil)
	}
	if err := m.SetRef(ctx, landRef(d.task), made.Commit, ""); err != nil {
		return failed(CodeMirror, err)
	}
	d.h.cfg.failpoint(pointReplayed)
	next.BaseOld, next.HeadSHA, next.LandSHA, next.LandTree = base, head, made.Commit, made.Tree
	next.Definition = d.def.Test
	next.Step = StepTesting
	if next.sameKey(d.attempt) && next.EvidenceID != 0 {
		next.Step = StepReady // tested green before, nothing that counts has changed
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

// fetch brings the mirror up to date and reads both ends of the landing.
func (d *drive) fetch(ctx context.Context) (m *git.Mirror, base, head string, err error) {
	if m, err = d.h.cfg.Mirrors.Open(ctx, d.def.Repo); err != nil {
		return nil, "", "", failed(CodeMirror, err)
	}
	if err = m.Fetch(ctx, d.def.Repo.Location); err != nil {
		return nil, "", "", failed(CodeFetch, err)
	}
	if base, err = m.Base(ctx, d.attempt.Target); err != nil {
		return nil, "", "", missing(CodeNoBase, err)
	}
	if head, err = m.Ref(ctx, branchRef(d.task)); err != nil {
		return nil, "", "", missing(CodeNoBranch, err)
	}
	if err := d.passed(ctx, m, head); err != nil {
		return nil, "", "", err
	}
	if d.task.Head != "" {
		head = d.task.Head
	}
	return m, base, head, nil
}

// passed refuses a branch that isn't at the commit which passed the gates: that one lands, or none. A branch that was
// published is at what orch itself made of that commit, and is set back before the attempt forgets that it did.
func (d *drive) passed(ctx context.Context, m *git.Mirror, branch string) error {
	head := d.task.Head
	if head == "" || head == branch {
		return nil
	}
	var ours bool
	err := fenced(ctx, d.job, func(tx pgx.Tx) (err error) {
		ours, err = madeFromTx(ctx, tx, d.task.ID, branch, head)
		return err
	})
	switch {
	case err != nil:
		return err
	case !ours:
		return failed(CodeBranch, fmt.Errorf("the gates passed commit %s, but the branch %s is at commit %s in the mirror %s",
			head, d.task.Branch, branch, m.Dir()))
	}
	if err := m.SetRef(ctx, branchRef(d.task), head, branch); err != nil {
		return failed(CodeMirror, err)
	}
	return nil
}

// missing is the problem of a ref that couldn't be read: it isn't there, or the mirror has one.
func missing(code string, err error) error {
	if !errors.Is(err, git.ErrNoRef) {
		code = CodeMirror
	}
	return failed(code, err)
}

// upstream finds out whether the work is in the target's history already, as what an earlier drive prepared (a
// person may have landed a ready branch) or as it came from its author, and as which commit.
func (d *drive) upstream(ctx context.Context, m *git.Mirror, base, head string) (string, error) {
	candidates := []string{head}
	kept, err := m.Ref(ctx, landRef(d.task))
	switch {
	case err == nil && kept == d.attempt.LandSHA:
		candidates = []string{kept, head}
	case err != nil && !errors.Is(err, git.ErrNoRef):
		return "", failed(CodeMirror, err)
	}
	for _, commit := range candidates {
		in, err := m.IsAncestor(ctx, commit, base)
		if err != nil {
			return "", failed(CodeMirror, err)
		}
		if in {
			return commit, nil
		}
	}
	return "", nil
}

// already ends the task without a test or a landing: its work is upstream as commit.
func (d *drive) already(ctx context.Context, commit string, err error) error {
	if err != nil {
		return err
	}
	next := d.attempt
	next.Step, next.LastError = StepFinalised, ""
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
	return d.giveUp(ctx, Return{Code: CodeConflict, Reason: reason, Feedback: feedback})
}

// giveUp sends the task back to its author.
func (d *drive) giveUp(ctx context.Context, r Return) error {
	next := d.attempt
	next.Step, next.LastError = StepReturned, r.Code
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
		return d.giveUp(ctx, Return{Code: CodeTestRed, Reason: result.Reason, Feedback: feedback})
	}
	next := a
	next.Step, next.EvidenceID = StepReady, result.EvidenceID
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
	m, err := d.h.cfg.Mirrors.Open(ctx, d.def.Repo)
	if err == nil {
		err = m.DeleteRef(ctx, landRef(d.task), "")
	}
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		d.h.log.WarnContext(ctx, "land ref not removed", append(d.facts(), "error", err)...)
	}
}
