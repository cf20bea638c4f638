// Package place is where tasks have their files below the data root: a mirror for each repository, a workspace for each
// task, and a throw-away checkout for each command that judges a commit. It tells stages, gates and the merge gate of them
// in their terms, and keeps the processes of one data root apart at them.
package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/root"
	"orch/internal/stage"
	"orch/internal/task"
)

// Config is what places need.
type Config struct {
	Root  *root.Root
	Git   *gitcmd.Git
	Forge forge.Forge
}

// Places keeps the mirrors, workspaces and checkouts of tasks below the data root.
type Places struct {
	root    *root.Root
	git     *gitcmd.Git
	mirrors Mirrors
	forge   forge.Forge
}

// New makes the places of a data root. Nothing is touched on disk.
func New(cfg Config) *Places {
	return &Places{
		root: cfg.Root, git: cfg.Git, mirrors: Mirrors{git: cfg.Git, dir: cfg.Root.MirrorsDir()}, forge: cfg.Forge,
	}
}

// landingWait is how long a landing, which others of its target wait for, waits for a lock of the mirror. It rather makes
// room and comes back than wait for a first fetch, or for a process that was stopped.
const landingWait = 30 * time.Second

// Mirrors has the mirror of each repository, for landings.
func (p *Places) Mirrors() Mirrors {
	m := p.mirrors
	m.locks = landingWait
	return m
}

// Dir implements stage.Workspaces.
func (p *Places) Dir(t task.Task) string {
	return filepath.Join(p.root.WorkspacesDir(), t.Repo, t.Key)
}

func (p *Places) mirror(ctx context.Context, t task.Task) (*git.Mirror, error) {
	return p.mirrors.Open(ctx, forge.Repo{Name: t.Repo})
}

func branchRef(t task.Task) string { return "refs/heads/" + t.Branch }

// Prepare implements stage.Workspaces: the workspace is a clone on the task's branch, made anew from what orch knows of
// the branch when it isn't there.
func (p *Places) Prepare(ctx context.Context, t task.Task, keep bool) (stage.Workspace, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return stage.Workspace{}, err
	}
	if err := m.Fetch(ctx, t.Location); errors.Is(err, git.ErrAway) {
		return stage.Workspace{}, &stage.AwayError{Err: err}
	} else if err != nil {
		return stage.Workspace{}, err
	}
	base, err := m.Base(ctx, t.BaseBranch)
	if err != nil {
		return stage.Workspace{}, fmt.Errorf("find branch %s of %s: %w", t.BaseBranch, t.Location, err)
	}
	start, err := p.start(ctx, m, t, base)
	if err != nil {
		return stage.Workspace{}, err
	}
	if keep {
		kept, err := p.keep(ctx, m, t, start)
		if err != nil || kept {
			return stage.Workspace{Dir: p.Dir(t), BaseCommit: base, Kept: kept}, err
		}
	}
	w, err := p.workspace(ctx, m, t, start)
	if err != nil {
		return stage.Workspace{}, err
	}
	ref, err := workspace.NextSalvageRef(ctx, m, t.Key)
	if err != nil {
		return stage.Workspace{}, err
	}
	if err := w.Reset(ctx, ref); err != nil {
		return stage.Workspace{}, err
	}
	return stage.Workspace{Dir: w.Dir(), BaseCommit: base}, nil
}

// start is where the workspace begins. Where this mirror has nothing of the task's branch, its work may have been made in
// another data root, and be in the repository because it was about to land there: what passed the gates is gone on with.
func (p *Places) start(ctx context.Context, m *git.Mirror, t task.Task, base string) (string, error) {
	branch, err := m.Ref(ctx, branchRef(t))
	if err != nil && !errors.Is(err, git.ErrNoRef) {
		return "", err
	}
	offered, failed := m.Offered(ctx, t.Key)
	if failed != nil && !errors.Is(failed, git.ErrNoRef) {
		return "", failed
	}
	switch {
	case branch == "" && (offered == "" || offered != t.PassedCommit): // perhaps of another task, in another database
		return base, nil
	case branch != "" && branch != offered:
		return branch, nil
	case branch == "":
		if err := m.SetRef(ctx, branchRef(t), offered, git.Absent); err != nil {
			return "", err
		}
	}
	// Its author may have to rebase it: it begins where it parted from the base.
	fork, err := p.forkPoint(ctx, m, base, offered)
	if err == nil && fork == "" {
		fork = offered
	}
	return fork, err
}

// keep says whether an agent can go on in the workspace as it was left, and imports its branch.
func (p *Places) keep(ctx context.Context, m *git.Mirror, t task.Task, start string) (bool, error) {
	if _, err := os.Lstat(p.Dir(t)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	w, err := workspace.At(ctx, m, p.spec(t, start))
	if err != nil {
		return false, err
	}
	err = w.Continue(ctx)
	if _, broken := errors.AsType[*workspace.Error](err); broken {
		return false, nil // it is salvaged and made anew
	}
	return err == nil, err
}

func (p *Places) workspace(ctx context.Context, m *git.Mirror, t task.Task, start string) (*workspace.Workspace, error) {
	dir := p.Dir(t)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // the data root above it is closed
		return nil, fmt.Errorf("make the workspace's directory: %w", err)
	}
	return workspace.Open(ctx, m, p.spec(t, start))
}

func (p *Places) spec(t task.Task, start string) workspace.Spec {
	return workspace.Spec{
		Dir: p.Dir(t), Branch: t.Branch, Start: start, Author: git.Identity{Name: "orch agent", Email: "agent@localhost"},
	}
}

// Inspect implements stage.Workspaces.
func (p *Places) Inspect(ctx context.Context, t task.Task) (stage.Head, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return stage.Head{}, err
	}
	base, err := m.Base(ctx, t.BaseBranch)
	if err != nil {
		return stage.Head{}, fmt.Errorf("find branch %s of %s: %w", t.BaseBranch, t.Location, err)
	}
	w, err := workspace.At(ctx, m, p.spec(t, base))
	if err != nil {
		return stage.Head{}, err
	}
	head := stage.Head{}
	if head.Commit, err = w.Head(ctx); err != nil {
		return stage.Head{}, asBranchError(err)
	}
	if head.Dirty, err = w.Dirty(ctx); err != nil {
		return stage.Head{}, asBranchError(err)
	}
	if head.Tree, err = m.Tree(ctx, head.Commit); err != nil {
		return stage.Head{}, err
	}
	if head.Upstream, err = m.IsAncestor(ctx, head.Commit, base); err != nil {
		return stage.Head{}, err
	}
	head.Base, err = p.forkPoint(ctx, m, base, head.Commit)
	return head, err
}

// asBranchError tells what an agent did to its workspace from what befell the machine.
func asBranchError(err error) error {
	if broken, ok := errors.AsType[*workspace.Error](err); ok {
		return &stage.BranchError{Detail: broken.Detail, Err: broken.Err}
	}
	return err
}

// forkPoint is the commit of the base branch that the task's branch starts from; a branch without a common history has
// none.
func (p *Places) forkPoint(ctx context.Context, m *git.Mirror, base, head string) (string, error) {
	out, err := p.git.Run(ctx, m.Dir(), nil, "merge-base", base, head)
	var failed *gitcmd.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}
