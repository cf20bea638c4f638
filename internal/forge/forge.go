// Package forge says what orch needs of the place where a repository really lives, be it a plain
// git repository on this machine or a hosted one. Implementations are sub-packages named for what they talk to.
package forge

import (
	"context"
	"errors"
)

// Repo is a configured repository.
type Repo struct {
	Name     string
	Location string // path or URL
	Base     string // target branch; empty means the repository's own default
}

// Checked is what a preflight found.
type Checked struct {
	Bare       bool
	CheckedOut string // the work tree in which the base branch is checked out, or ""
	Base       string // the base branch: the configured one, or the one that was detected
	Head       string // commit of the base branch
	Path       string // canonical location
}

// Landing is a tested commit that should become the head of a target branch.
type Landing struct {
	Mirror string // git directory which has the commit
	Ref    string // ref of Mirror that points at New
	Base   string // target branch, short name
	Old    string // commit that the target must be at
	New    string // commit to land; a descendant of Old
	Key    string // task key, for the reflog
}

// LandResult is what became of a landing that didn't fail.
type LandResult struct {
	Already    bool   // it had been landed before
	CheckedOut string // work tree that has to follow (Refresh), or ""
}

// Forge is a place where repositories live.
type Forge interface {
	// Check says whether orch could land on repo now; what stands in the way is a *ProblemError.
	Check(ctx context.Context, repo Repo) (Checked, error)
	// Land moves the target from Old to New in one step, or not at all. ErrBaseMoved when it isn't at Old.
	// It doesn't touch checked out files: Refresh does.
	Land(ctx context.Context, repo Repo, l Landing) (LandResult, error)
	// Landed says whether commit is in the history of target, asked of the real repository.
	Landed(ctx context.Context, repo Repo, target, commit string) (bool, error)
	// Refresh lets work trees that have target checked out follow its move from old to new. It may be
	// repeated at will, also after a crash in its middle.
	Refresh(ctx context.Context, repo Repo, target, old, to string) error
	// Publish copies a ref of the git directory mirrorDir (below refs/orch/, or a branch below orch/) into the repository.
	// A salvage (below refs/orch/salvage/) never takes another one's place: ErrRefTaken.
	Publish(ctx context.Context, repo Repo, mirrorDir, ref string) error
	// Branch makes a branch of the repository at a commit of the git directory mirrorDir. A branch that is there, unless it
	// is at that commit, is ErrRefTaken.
	Branch(ctx context.Context, repo Repo, mirrorDir, commit, branch string) error
	// Unpublish removes what Publish made; a ref that isn't there is no error.
	Unpublish(ctx context.Context, repo Repo, ref string) error
}

// ErrBaseMoved means that the target branch isn't at the commit which was tested as its base.
var ErrBaseMoved = errors.New("target branch has moved")

// ErrRefTaken means that the repository has something else under that name.
var ErrRefTaken = errors.New("the name is taken")

// Code says in one stable word what is wrong with a repository.
type Code string

// The problems that implementations report.
const (
	CodeMissing        Code = "repository_missing"
	CodeNotRepository  Code = "not_a_repository"
	CodeNotToplevel    Code = "not_the_toplevel"
	CodeLinkedWorktree Code = "linked_worktree"
	CodeForeign        Code = "repository_of_another" // another user owns it
	CodeNoCommits      Code = "no_commits"
	CodeNoBranch       Code = "unknown_branch"
	CodeDirty          Code = "checkout_dirty"
	CodeUnfinished     Code = "checkout_unfinished"
	CodeOverwrites     Code = "checkout_overwrites"
	CodeFilters        Code = "checkout_filters"
	CodeMoved          Code = "checkout_moved"
	CodeRewind         Code = "not_a_descendant"
	CodeLocked         Code = "repository_locked"
	CodeRefused        Code = "ref_refused"
)

// HindersOnlyLanding tells problems that don't matter to a task that orch isn't to land.
func (c Code) HindersOnlyLanding() bool {
	switch c {
	case CodeDirty, CodeUnfinished, CodeOverwrites, CodeFilters:
		return true
	default:
		return false
	}
}

// ProblemError is something that a person (or, when Retry is set, time) has to put right.
type ProblemError struct {
	Code    Code
	Message string
	Hint    string // what to do
	Retry   bool   // it may well be gone in a moment
}

func (e *ProblemError) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}
