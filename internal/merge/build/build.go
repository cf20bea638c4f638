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
	Committer git.Identity // of the commits that are made
}

// Source is the work of a task that is to land.
type Source struct {
	Key    string // of the task
	Branch string // the short name of its branch
}

// LandRef keeps the commit that is to be landed, and with it what a test's checkout needs, from git's clean-up.
func LandRef(key string) string { return "refs/orch/land/" + key }

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
