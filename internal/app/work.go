package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	ref, err := p.nextSalvage(ctx, m, t)
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
	return workspace.Open(ctx, m, workspace.Spec{Dir: dir, Branch: t.Branch, Start: start, Author: git.Identity{
		Name: "orch agent", Email: "agent@localhost",
	}})
}

// nextSalvage names a salvage ref that the mirror hasn't got yet.
func (p *places) nextSalvage(ctx context.Context, m *git.Mirror, t task.Task) (string, error) {
	for n := 1; ; n++ {
		ref := stage.SalvageRef(t.Key, n)
		_, err := m.Ref(ctx, ref)
		if errors.Is(err, git.ErrNoRef) {
			return ref, nil
		}
		if err != nil {
			return "", err
		}
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
	w, err := p.workspace(ctx, m, t, base)
	if err != nil {
		return stage.Head{}, err
	}
	head := stage.Head{}
	if head.Commit, err = w.Head(ctx); err != nil {
		return stage.Head{}, err
	}
	if head.Dirty, err = w.Dirty(ctx); err != nil {
		return stage.Head{}, err
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
func (p *places) Salvage(ctx context.Context, t task.Task, ref string, onlyDirty bool) (string, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(p.Dir(t)); errors.Is(err, os.ErrNotExist) {
		if onlyDirty {
			return "", nil
		}
		return p.salvageBranch(ctx, m, t, ref)
	}
	w, err := p.workspace(ctx, m, t, "")
	if err != nil {
		return "", err
	}
	if onlyDirty {
		dirty, err := w.Dirty(ctx)
		if err != nil || len(dirty) == 0 {
			return "", err
		}
	}
	return w.Salvage(ctx, ref)
}

// salvageBranch keeps what orch imported of a branch whose workspace is gone already.
func (p *places) salvageBranch(ctx context.Context, m *git.Mirror, t task.Task, ref string) (string, error) {
	head, err := m.Ref(ctx, branchRef(t))
	if errors.Is(err, git.ErrNoRef) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if base, err := m.Base(ctx, t.BaseBranch); err == nil {
		if in, err := m.IsAncestor(ctx, head, base); err != nil || in {
			return "", err
		}
	}
	return head, m.SetRef(ctx, ref, head, "")
}

// Remove implements stage.Remains.
func (p *places) Remove(ctx context.Context, t task.Task) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(p.Dir(t)); err == nil {
		w, err := p.workspace(ctx, m, t, "")
		if err != nil {
			return err
		}
		if err := w.Remove(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(p.checkouts(t)); err != nil {
		return fmt.Errorf("remove checkouts: %w", err)
	}
	return nil
}
