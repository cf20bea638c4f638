package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"orch/internal/app/catalog"
	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/gitcmd"
	"orch/internal/git/workspace"
	"orch/internal/root"
	"orch/internal/stage"
	"orch/internal/task"
)

func (m mirrors) path(repo string) string { return filepath.Join(m.dir, repo) }

// places keeps the mirrors, workspaces and checkouts of tasks below the data root.
type places struct {
	root    *root.Root
	git     *gitcmd.Git
	mirrors mirrors
	forge   forge.Forge
	catalog *catalog.Catalog
	store   *task.Store
}

// Dir implements stage.Workspaces.
func (p *places) Dir(t task.Task) string {
	return filepath.Join(p.root.WorkspacesDir(), t.Repo, t.Key)
}

// checkout is where one command of a task runs: the same place for the same run, so that a re-attached one still has it.
func (p *places) checkout(t task.Task, key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(p.checkouts(t), hex.EncodeToString(sum[:6]))
}

func (p *places) checkouts(t task.Task) string {
	return filepath.Join(p.root.CheckoutsDir(), t.Repo, t.Key)
}

func (p *places) mirror(ctx context.Context, t task.Task) (*git.Mirror, error) {
	return p.mirrors.Open(ctx, forge.Repo{Name: t.Repo})
}

func branchRef(t task.Task) string { return "refs/heads/" + t.Branch }

// Prepare implements stage.Workspaces: the workspace is a clone on the task's branch, made anew from what orch knows of
// the branch when it isn't there.
func (p *places) Prepare(ctx context.Context, t task.Task) (stage.Workspace, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return stage.Workspace{}, err
	}
	if err := m.Fetch(ctx, t.Location); err != nil {
		return stage.Workspace{}, err
	}
	base, err := m.Base(ctx, t.BaseBranch)
	if err != nil {
		return stage.Workspace{}, fmt.Errorf("find branch %s of %s: %w", t.BaseBranch, t.Location, err)
	}
	start, err := m.Ref(ctx, branchRef(t))
	if errors.Is(err, git.ErrNoRef) {
		start, err = base, nil
	}
	if err != nil {
		return stage.Workspace{}, err
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

func (p *places) workspace(ctx context.Context, m *git.Mirror, t task.Task, start string) (*workspace.Workspace, error) {
	dir := p.Dir(t)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // the data root above it is closed
		return nil, fmt.Errorf("make the workspace's directory: %w", err)
	}
	return workspace.Open(ctx, m, p.spec(t, start))
}

func (p *places) spec(t task.Task, start string) workspace.Spec {
	return workspace.Spec{
		Dir: p.Dir(t), Branch: t.Branch, Start: start, Author: git.Identity{Name: "orch agent", Email: "agent@localhost"},
	}
}

// Inspect implements stage.Workspaces.
func (p *places) Inspect(ctx context.Context, t task.Task) (stage.Head, error) {
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
func (p *places) forkPoint(ctx context.Context, m *git.Mirror, base, head string) (string, error) {
	out, err := p.git.Run(ctx, m.Dir(), nil, "merge-base", base, head)
	var failed *gitcmd.Error
	if errors.As(err, &failed) && failed.Code == 1 {
		return "", nil
	}
	return strings.TrimSpace(string(out)), err
}

// Publish implements stage.Publisher.
func (p *places) Publish(ctx context.Context, t task.Task, ref string) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	return p.forge.Publish(ctx, forge.Repo{Name: t.Repo, Location: t.Location, Base: t.BaseBranch}, m.Dir(), ref)
}

// Salvage implements stage.Remains.
func (p *places) Salvage(ctx context.Context, t task.Task, onlyDirty bool) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(p.Dir(t)); errors.Is(err, fs.ErrNotExist) {
		if onlyDirty {
			return nil
		}
		return p.salvageBranch(ctx, m, t)
	}
	w, err := workspace.At(ctx, m, p.spec(t, "refs/remotes/origin/"+t.BaseBranch))
	if err != nil {
		return err
	}
	if onlyDirty {
		dirty, err := w.Dirty(ctx)
		if _, broken := errors.AsType[*workspace.Error](err); !broken && (err != nil || len(dirty) == 0) {
			return err // what is broken is kept, since nobody can say what it holds
		}
	}
	ref, err := workspace.NextSalvageRef(ctx, m, t.Key)
	if err != nil {
		return err
	}
	_, err = w.Salvage(ctx, ref)
	return err
}

// salvageBranch keeps what orch imported of a branch whose workspace is gone already, unless it is kept somewhere.
func (p *places) salvageBranch(ctx context.Context, m *git.Mirror, t task.Task) error {
	head, err := m.Ref(ctx, branchRef(t))
	if errors.Is(err, git.ErrNoRef) {
		return nil
	}
	if err != nil {
		return err
	}
	list, err := workspace.Salvages(ctx, m, t.Key)
	if err != nil {
		return err
	}
	safe := make([]string, 0, len(list)+1)
	for _, kept := range list {
		safe = append(safe, kept.Commit)
	}
	if base, err := m.Base(ctx, t.BaseBranch); err == nil {
		safe = append(safe, base)
	}
	for _, commit := range safe {
		if in, err := m.IsAncestor(ctx, head, commit); err != nil || in {
			return err
		}
	}
	ref, err := workspace.NextSalvageRef(ctx, m, t.Key)
	if err != nil {
		return err
	}
	return m.SetRef(ctx, ref, head, git.Absent)
}

// Salvages implements stage.Remains.
func (p *places) Salvages(ctx context.Context, t task.Task) ([]stage.Salvaged, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return nil, err
	}
	list, err := workspace.Salvages(ctx, m, t.Key)
	if err != nil {
		return nil, err
	}
	salvaged := make([]stage.Salvaged, len(list))
	for i, kept := range list {
		salvaged[i] = stage.Salvaged{Ref: kept.Ref, Commit: kept.Commit}
	}
	return salvaged, nil
}

// Remove implements stage.Remains.
func (p *places) Remove(ctx context.Context, t task.Task) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	if err := workspace.Remove(ctx, m, p.Dir(t), t.Branch); err != nil {
		return err
	}
	if err := git.RemoveAll(p.checkouts(t)); err != nil {
		return fmt.Errorf("remove checkouts: %w", err)
	}
	return nil
}
