package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"orch/internal/disk"
	"orch/internal/git"
	"orch/internal/queue"
	"orch/internal/task"
)

// SweepConfig says what a Sweeper may ask, and what stays.
type SweepConfig struct {
	Places     *Places
	Tasks      *task.Store
	Jobs       *queue.Queue
	LivingRuns func(ctx context.Context, taskID int64) (int, error)
	Age        time.Duration // how long a workspace waits for an answer to its agent's question
	Size       int64         // of all workspaces together, in bytes: those that wait longest go first; 0 = no bound
	Logger     *slog.Logger  // nil = silent
}

// Sweeper finds workspaces and checkouts that nobody will come back to, or that wait for too long, whatever kept them from
// being cleaned up when it was time. What is in them is salvaged first.
type Sweeper struct {
	SweepConfig

	strange map[string]bool // what was told of already
}

// NewSweeper makes a Sweeper. Its Sweep is for one caller at a time.
func NewSweeper(cfg SweepConfig) *Sweeper {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Sweeper{SweepConfig: cfg, strange: map[string]bool{}}
}

// found is what a task has on disk.
type found struct{ repo, key string }

// Sweep looks at every place once. What fails is tried again by the next one; the others are looked at all the same.
func (s *Sweeper) Sweep(ctx context.Context) error {
	all, err := s.list()
	if err != nil {
		return fmt.Errorf("sweep workspaces: %w", err)
	}
	var asking []task.Task
	var failed []error
	for _, f := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		asks, err := s.look(ctx, f)
		if err != nil {
			failed = append(failed, fmt.Errorf("sweep the workspace of %s: %w", f.key, err))
		}
		if asks != nil {
			asking = append(asking, *asks)
		}
	}
	if err := s.bound(ctx, asking); err != nil {
		failed = append(failed, fmt.Errorf("bound workspaces: %w", err))
	}
	return errors.Join(failed...)
}

// list has every task that has a workspace, half of one, or a checkout.
func (s *Sweeper) list() ([]found, error) {
	var all []found
	for _, dir := range []string{s.Places.root.WorkspacesDir(), s.Places.root.CheckoutsDir()} {
		repos, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, repo := range repos {
			entries, err := os.ReadDir(filepath.Join(dir, repo.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, e := range entries {
				if f := (found{repo.Name(), keyOf(e.Name())}); !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		}
	}
	return all, nil
}

// halves are what git.Hidden makes of a workspace's name while it is made, replaced or removed.
func halves() []string { return []string{"new", "old", "file"} }

// keyOf is the key of the task whose directory, or half of one, has that name.
func keyOf(name string) string {
	for _, half := range halves() {
		if key, is := strings.CutSuffix(name, "."+half); is && strings.HasPrefix(key, ".") {
			return key[1:]
		}
	}
	return name
}

// look does what there is to do about one task's places. A task is returned whose workspace waits for an answer.
func (s *Sweeper) look(ctx context.Context, f found) (*task.Task, error) {
	t, err := s.Tasks.Get(ctx, f.key)
	if errors.Is(err, task.ErrNotFound) || err == nil && t.Repo != f.repo {
		if !s.strange[f.repo+"/"+f.key] {
			s.strange[f.repo+"/"+f.key] = true
			s.Logger.WarnContext(ctx, "no task has this workspace; it is left alone", slog.String("repo", f.repo), slog.String("task", f.key))
		}
		return nil, nil //nolint:nilnil // no task waits here
	}
	if err != nil {
		return nil, err
	}
	if t.RootID != nil && *t.RootID != s.Places.root.ID() {
		return nil, s.ifFree(ctx, t, func(now task.Task) error {
			if now.RootID == nil || *now.RootID == s.Places.root.ID() {
				return nil
			}
			return s.giveUp(ctx, now)
		})
	}
	asking := t.State == task.Blocked && t.ReasonCode == task.CodeNeedsInput
	if t.State.Ended() || t.Ready() || t.State == task.Blocked && !asking {
		return nil, s.Tasks.Retire(ctx, t.ID)
	}
	if err := s.dropHalves(t); err != nil || !asking {
		return nil, err
	}
	err = s.ifFree(ctx, t, func(now task.Task) error { return git.RemoveAll(s.Places.checkouts(now)) })
	return &t, err
}

// ifFree runs fn with the task as it is when no job and no run has to do with it, and none can begin to. Else it is the
// next sweep's.
func (s *Sweeper) ifFree(ctx context.Context, t task.Task, fn func(now task.Task) error) error {
	err := s.Places.locked(t.ID, func() error {
		job, err := s.Jobs.ActiveForTask(ctx, t.ID)
		if err != nil || job != nil && (job.PinnedRoot == nil || *job.PinnedRoot == s.Places.root.ID()) {
			return err
		}
		living, err := s.LivingRuns(ctx, t.ID)
		if err != nil || living > 0 {
			return err
		}
		now, err := s.Tasks.ByID(ctx, t.ID)
		if err != nil {
			return err
		}
		return fn(now)
	})
	if _, busy := errors.AsType[*queue.SnoozeError](err); busy {
		return nil
	}
	return err
}

// giveUp removes what a task has here that goes on in another data root. What is kept of it stays in the mirror, and is
// published if that can be done.
func (s *Sweeper) giveUp(ctx context.Context, t task.Task) error {
	if err := s.Places.Salvage(ctx, t, false); err != nil {
		return err
	}
	list, err := s.Places.Salvages(ctx, t)
	if err != nil {
		return err
	}
	for _, kept := range list {
		ref, err := s.Places.Publish(ctx, t, kept.Ref)
		if err == nil {
			err = s.Tasks.NoteBy(ctx, t.ID, task.System, task.EventSalvaged, "it was left in another data root",
				map[string]any{"ref": ref, "commit": kept.Commit})
		}
		if err != nil {
			s.Logger.WarnContext(ctx, "salvage stays in this data root", slog.String("task", t.Key), slog.String("ref", kept.Ref), slog.Any("error", err))
		}
	}
	if err := s.Places.Remove(ctx, t); err != nil {
		return err
	}
	s.Logger.InfoContext(ctx, "workspace removed of a task that goes on elsewhere", slog.String("task", t.Key))
	return nil
}

// dropHalves removes what a killed process left of making a workspace, replacing or removing one. Nobody is at it.
func (s *Sweeper) dropHalves(t task.Task) error {
	for _, half := range halves() {
		path := git.Hidden(s.Places.Dir(t), half)
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := s.Places.locked(t.ID, func() error { return git.RemoveAll(path) })
		if _, busy := errors.AsType[*queue.SnoozeError](err); !busy && err != nil {
			return err
		}
	}
	return nil
}

// bound retires the workspaces of tasks that have waited for their answer longer than they may, and those which have
// waited longest while all take more room than they may. The answer finds a new one.
func (s *Sweeper) bound(ctx context.Context, asking []task.Task) error {
	if len(asking) == 0 {
		return nil
	}
	slices.SortFunc(asking, func(a, b task.Task) int { return cmp.Compare(a.UpdatedAt.UnixNano(), b.UpdatedAt.UnixNano()) })
	over := int64(0)
	if s.Size > 0 {
		used, err := disk.Usage(ctx, s.Places.root.WorkspacesDir())
		if err != nil {
			return err
		}
		over = used - s.Size
	}
	for _, t := range asking {
		old := time.Since(t.UpdatedAt) > s.Age
		if !old && over <= 0 {
			return nil
		}
		size, err := disk.Usage(ctx, s.Places.Dir(t))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := s.Tasks.Retire(ctx, t.ID); err != nil {
			return err
		}
		over -= size
		s.Logger.InfoContext(ctx, "workspace of a task that waits for an answer is put aside", slog.String("task", t.Key),
			slog.Time("waits_since", t.UpdatedAt), slog.Int64("bytes", size))
	}
	return nil
}
