package place

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/git/workspace"
	"orch/internal/stage"
	"orch/internal/task"
)

// publishTries bounds how often a salvage gets another number, since others publish theirs too.
const publishTries = 5

// Publish implements stage.Publisher. Keys of tasks may begin again at the first, in another database or data root: what
// the repository has of an earlier task stays, and the salvage gets the next number.
func (p *Places) Publish(ctx context.Context, t task.Task, ref string) (string, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return "", err
	}
	for range publishTries {
		err = p.forge.Publish(ctx, repoOf(t), m.Dir(), ref)
		if !errors.Is(err, forge.ErrRefTaken) {
			return ref, err
		}
		if err := m.Fetch(ctx, t.Location); err != nil {
			return "", err
		}
		if ref, err = workspace.Renumber(ctx, m, t.Key, ref); err != nil {
			return "", err
		}
	}
	return "", err
}

// Salvage implements stage.Remains.
func (p *Places) Salvage(ctx context.Context, t task.Task, onlyDirty bool) error {
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
		clean, err := p.clean(ctx, w)
		if err != nil || clean {
			return err
		}
	}
	ref, err := workspace.NextSalvageRef(ctx, m, t.Key)
	if err != nil {
		return err
	}
	_, err = w.Salvage(ctx, ref)
	return err
}

// clean says whether a workspace has nothing to keep. What is broken has, since nobody can say what it holds.
func (p *Places) clean(ctx context.Context, w *workspace.Workspace) (bool, error) {
	if err := w.Tidy(ctx); err != nil {
		return false, err
	}
	clean, err := w.Clean(ctx)
	if _, broken := errors.AsType[*workspace.Error](err); broken {
		return false, nil
	}
	return clean, err
}

// salvageBranch keeps what orch imported of a branch whose workspace is gone already, unless it is kept somewhere.
func (p *Places) salvageBranch(ctx context.Context, m *git.Mirror, t task.Task) error {
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
func (p *Places) Salvages(ctx context.Context, t task.Task) ([]stage.Salvaged, error) {
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
func (p *Places) Remove(ctx context.Context, t task.Task) error {
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
	return p.removeLanding(ctx, m, t)
}

// removeLanding removes what a landing of the task left. That of a task which hasn't ended is gone on with, here or in the
// data root that it is in by now.
func (p *Places) removeLanding(ctx context.Context, m *git.Mirror, t task.Task) error {
	elsewhere := t.RootID != nil && *t.RootID != p.root.ID()
	if !t.State.Ended() && !elsewhere {
		return nil
	}
	refs := []string{git.HeadPrefix + t.Key, git.LandPrefix + t.Key}
	for _, ref := range refs {
		if err := m.DeleteRef(ctx, ref, ""); err != nil {
			return err
		}
	}
	if !t.State.Ended() {
		return nil
	}
	err := p.forge.Unpublish(ctx, repoOf(t), refs...)
	if problem, is := errors.AsType[*forge.ProblemError](err); is && problem.Code.Class() == forge.Operator {
		return nil // a repository that isn't there any more, say: nothing in it is in anybody's way
	}
	return err
}
