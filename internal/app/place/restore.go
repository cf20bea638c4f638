package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/stage"
	"orch/internal/task"
)

// Kept is a salvage of a task that can be restored.
type Kept struct {
	Number      int
	Ref, Commit string
	At          time.Time // of the commit
	Subject     string
}

// Kept is what was salvaged of a task, the oldest first: what the mirror has, and what the repository has of those that
// the task's history tells of, when the mirror was lost since.
func (p *Places) Kept(ctx context.Context, t task.Task, told []stage.Salvaged) ([]Kept, error) {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return nil, err
	}
	list, err := p.Salvages(ctx, t)
	if err != nil {
		return nil, err
	}
	all := make([]Kept, 0, len(list))
	for _, s := range list {
		kept, err := keptAt(ctx, m, s)
		if err != nil {
			return nil, err
		}
		all = append(all, kept)
	}
	for _, s := range told {
		if slices.ContainsFunc(all, func(k Kept) bool { return k.Ref == s.Ref }) {
			continue
		}
		kept, err := p.keptElsewhere(ctx, m, t, s)
		if errors.Is(err, git.ErrNoRef) {
			continue // gone from the repository too
		}
		if err != nil {
			return nil, err
		}
		all = append(all, kept)
	}
	slices.SortFunc(all, func(a, b Kept) int { return cmp.Compare(a.Number, b.Number) })
	return all, nil
}

func keptAt(ctx context.Context, m *git.Mirror, s stage.Salvaged) (Kept, error) {
	number, err := strconv.Atoi(path.Base(s.Ref))
	if err != nil {
		return Kept{}, fmt.Errorf("read salvage %s: %w", s.Ref, err)
	}
	commit, err := m.Commit(ctx, s.Commit)
	if err != nil {
		return Kept{}, fmt.Errorf("read salvage %s: %w", s.Ref, err)
	}
	return Kept{Number: number, Ref: s.Ref, Commit: s.Commit, At: commit.AuthorDate, Subject: commit.Subject}, nil
}

// keptElsewhere finds a salvage in the task's repository.
func (p *Places) keptElsewhere(ctx context.Context, m *git.Mirror, t task.Task, s stage.Salvaged) (Kept, error) {
	if _, err := m.Resolve(ctx, s.Commit); err != nil {
		if err := m.Fetch(ctx, t.Location); err != nil {
			return Kept{}, err
		}
		if _, err := m.Resolve(ctx, s.Commit); err != nil {
			return Kept{}, err
		}
	}
	return keptAt(ctx, m, s)
}

// Restore makes a branch of the task's repository at what was kept.
func (p *Places) Restore(ctx context.Context, t task.Task, kept Kept, branch string) error {
	m, err := p.mirror(ctx, t)
	if err != nil {
		return err
	}
	return p.forge.Branch(ctx, repoOf(t), m.Dir(), kept.Commit, branch)
}

func repoOf(t task.Task) forge.Repo {
	return forge.Repo{Name: t.Repo, Location: t.Location, Base: t.BaseBranch}
}
