// Package forge says what orch needs of the place where a repository really lives, be it a plain
// git repository on this machine or a hosted one. Implementations are sub-packages named for what they talk to.
package forge

import (
	"context"
	"errors"
	"fmt"
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
	Mirror string            // git directory which has the commit
	Base   string            // target branch, short name
	Old    string            // commit that the target must be at
	New    string            // commit to land; a descendant of Old
	Key    string            // task key, for the reflog
	Claim  Claim             // what Claim was called with; without an owner the landing is bound to no claim
	Verify map[string]string // full names of refs of the repository, and the commits that they must still be at
}

// LandResult is what became of a landing. Certain counts also where Land failed.
type LandResult struct {
	Already    bool   // it had been landed before
	CheckedOut string // work tree that has to follow (Refresh), or ""
	Certain    bool   // nothing of this call can move the target any more, so that a look at it says how it ended
}

// Claim says who may land on a target branch: within an installation of orch the one with the highest epoch.
type Claim struct {
	Owner string // the installation
	Epoch int64  // of the merge lease
}

// Forge is a place where repositories live.
type Forge interface {
	// Check says whether orch could land on repo now; what stands in the way is a *ProblemError.
	Check(ctx context.Context, repo Repo) (Checked, error)
	// Claim makes c the claim on target: what an earlier one is bound to can't move the target from now on, although it
	// may be at it. It is repeatable. A higher epoch than c's that is there already: *ClaimedError.
	Claim(ctx context.Context, repo Repo, target string, c Claim) error
	// Land moves the target from Old to New in one step, or not at all: ErrBaseMoved when it isn't at Old, ErrClaimed when
	// the claim isn't there (any more), ErrChanged when a ref to verify isn't at its commit.
	// It doesn't touch checked out files: Refresh does.
	Land(ctx context.Context, repo Repo, l Landing) (LandResult, error)
	// Landed says whether commit is in the history of target, asked of the real repository.
	Landed(ctx context.Context, repo Repo, target, commit string) (bool, error)
	// Refresh lets work trees that have target checked out follow its move from old to new. It may be
	// repeated at will, also after a crash in its middle.
	Refresh(ctx context.Context, repo Repo, target, old, to string) error
	// Publish copies refs of the git directory mirrorDir (below refs/orch/, or branches below orch/) into the repository.
	// A salvage (below refs/orch/salvage/) never takes another one's place: ErrRefTaken.
	Publish(ctx context.Context, repo Repo, mirrorDir string, refs ...string) error
	// Branch makes a branch of the repository at a commit of the git directory mirrorDir. A branch that is there, unless it
	// is at that commit, is ErrRefTaken.
	Branch(ctx context.Context, repo Repo, mirrorDir, commit, branch string) error
	// Unpublish removes what Publish made; a ref that isn't there is no error.
	Unpublish(ctx context.Context, repo Repo, refs ...string) error
}

var (
	// ErrBaseMoved means that the target branch isn't at the commit which was tested as its base.
	ErrBaseMoved = errors.New("target branch has moved")
	// ErrClaimed means that the target is claimed otherwise: by a later holder of the merge lease.
	ErrClaimed = errors.New("another holder has claimed the target")
	// ErrChanged means that a ref which a landing is bound to isn't at its commit.
	ErrChanged = errors.New("what was to land has changed")
	// ErrRefTaken means that the repository has something else under that name.
	ErrRefTaken = errors.New("the name is taken")
)

// ClaimedError is ErrClaimed, with the epoch that is there. A holder whose lease is in order meets it only when the
// database is older than the repository: one that was restored from a copy.
type ClaimedError struct {
	Target string
	Epoch  int64
}

func (e *ClaimedError) Error() string {
	return fmt.Sprintf("%v: %s is claimed with epoch %d", ErrClaimed, e.Target, e.Epoch)
}

func (e *ClaimedError) Unwrap() error { return ErrClaimed }

// Code says in one stable word what is wrong with a repository.
type Code string

// The problems that implementations report.
const (
	CodeMissing        Code = "repository_missing"
	CodeNotRepository  Code = "not_a_repository"
	CodeNotToplevel    Code = "not_the_toplevel"
	CodeLinkedWorktree Code = "linked_worktree"
	CodeForeign        Code = "repository_of_another" // another user owns it
	CodeShallow        Code = "repository_shallow"
	CodeNoCommits      Code = "no_commits"
	CodeNoBranch       Code = "unknown_branch"
	CodeDirty          Code = "checkout_dirty"
	CodeUnfinished     Code = "checkout_unfinished"
	CodeOverwrites     Code = "checkout_overwrites"
	CodeFilters        Code = "checkout_filters"
	CodeAway           Code = "checkout_away" // its disk isn't there
	CodeMoved          Code = "checkout_moved"
	CodeRewind         Code = "not_a_descendant"
	CodeLocked         Code = "repository_locked"
	CodeRefused        Code = "ref_refused"
)

// Class says what a problem waits for.
type Class string

// The classes of problems.
const (
	Passing  Class = "passing"  // for what works there to end, or for somebody to tidy up: it is looked at again
	Operator Class = "operator" // for a person, who has to change something
)

// Class is what a problem with this code waits for.
func (c Code) Class() Class {
	switch c {
	case CodeLocked, CodeDirty, CodeUnfinished, CodeOverwrites, CodeAway, CodeMoved:
		return Passing
	default:
		return Operator
	}
}

// NeedsPerson says that a person has to do something before a landing that met this can go on, be it tried again until then or
// not: what isn't in it passes, or isn't a problem that is known here.
func (c Code) NeedsPerson() bool {
	switch c {
	case CodeMissing, CodeNotRepository, CodeNotToplevel, CodeLinkedWorktree, CodeForeign, CodeShallow, CodeNoCommits, CodeNoBranch,
		CodeDirty, CodeUnfinished, CodeOverwrites, CodeFilters, CodeAway, CodeRewind, CodeRefused:
		return true
	default:
		return false
	}
}

// HindersOnlyLanding tells problems that don't matter to a task that orch isn't to land.
func (c Code) HindersOnlyLanding() bool {
	switch c {
	case CodeDirty, CodeUnfinished, CodeOverwrites, CodeAway, CodeFilters:
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
