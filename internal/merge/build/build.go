// Package build makes the commits that are to land, in the mirror of this machine. It knows no database: whose turn it is
// and what is recorded of it is in package merge.
package build

import (
	"context"
	"errors"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge/problem"
)

// Mirrors opens the mirror of a repository on this machine.
type Mirrors interface {
	Open(ctx context.Context, repo forge.Repo) (*git.Mirror, error)
}

// Builder builds in the mirrors.
type Builder struct {
	Mirrors   Mirrors
	Forge     forge.Forge
	Committer git.Identity // of the commits that are made
}

// Source is the work of a task that is to land.
type Source struct {
	Key    string // of the task
	Branch string // the short name of its branch
	Title  string // of the task, for the commit that a merge or a squash makes
}

// LandRef keeps the commit that is to be landed, and with it what a test's checkout needs, from git's clean-up.
func LandRef(key string) string { return "refs/orch/land/" + key }

// HeadRef is where the repository has the head that is to land, for whoever lands it.
func HeadRef(key string) string { return "refs/orch/head/" + key }

// BranchRef is the task's branch in the mirror.
func (s Source) BranchRef() string { return "refs/heads/" + s.Branch }

// Dir is the git directory of the repository's mirror.
func (b Builder) Dir(ctx context.Context, repo forge.Repo) (string, error) {
	m, err := b.Mirrors.Open(ctx, repo)
	if err != nil {
		return "", problem.Of(problem.Mirror, err)
	}
	return m.Dir(), nil
}

// Offer brings a head that is to land into the repository, so that any mirror of it can go on with the landing. It answers
// false when the task's branch isn't at that head here.
func (b Builder) Offer(ctx context.Context, repo forge.Repo, s Source, head string) (bool, error) {
	m, err := b.Mirrors.Open(ctx, repo)
	if err != nil {
		return false, problem.Of(problem.Mirror, err)
	}
	branch, err := m.Ref(ctx, s.BranchRef())
	if errors.Is(err, git.ErrNoRef) || err == nil && branch != head {
		return false, nil
	}
	if err == nil {
		err = m.SetRef(ctx, HeadRef(s.Key), head, "")
	}
	if err != nil {
		return false, problem.Of(problem.Mirror, err)
	}
	if err := b.Forge.Publish(ctx, repo, m.Dir(), HeadRef(s.Key)); err != nil {
		return false, problem.Of(problem.Publish, err)
	}
	return true, nil
}

// Withdraw takes an offer back. It may be gone.
func (b Builder) Withdraw(ctx context.Context, repo forge.Repo, key string) error {
	m, err := b.Mirrors.Open(ctx, repo)
	if err == nil {
		err = m.DeleteRef(ctx, HeadRef(key), "")
	}
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		return err
	}
	return b.Forge.Unpublish(ctx, repo, HeadRef(key))
}

// Discard removes what was kept of a landing. It may be gone.
func (b Builder) Discard(ctx context.Context, repo forge.Repo, key string) error {
	m, err := b.Mirrors.Open(ctx, repo)
	if err == nil {
		err = m.DeleteRef(ctx, LandRef(key), "")
	}
	if errors.Is(err, git.ErrNoRef) {
		return nil
	}
	return err
}

// Put sets the task's branch to a commit, wherever it is, and answers the git directory that has it.
func (b Builder) Put(ctx context.Context, repo forge.Repo, s Source, commit string) (dir string, err error) {
	m, err := b.Mirrors.Open(ctx, repo)
	if err != nil {
		return "", problem.Of(problem.Mirror, err)
	}
	if err := m.SetRef(ctx, s.BranchRef(), commit, ""); err != nil {
		return "", problem.Of(problem.Publish, err)
	}
	return m.Dir(), nil
}

// missing is the problem of a ref that couldn't be read: it isn't there, or the mirror has one.
func missing(code string, err error) error {
	if !errors.Is(err, git.ErrNoRef) {
		code = problem.Mirror
	}
	return problem.Of(code, err)
}
