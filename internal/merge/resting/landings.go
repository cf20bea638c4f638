// Package resting answers whether a landing that rests, with a person or for a cause that may be over, may go on.
package resting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/git"
	"orch/internal/merge"
	"orch/internal/merge/attempt"
	"orch/internal/merge/build"
	"orch/internal/merge/problem"
)

// Config configures Landings. All but Fresh and Logger are required.
type Config struct {
	Pool      *pgxpool.Pool
	Store     *attempt.Store
	Tasks     merge.Tasks
	Mirrors   build.Mirrors
	Catalog   merge.Catalog
	Forge     forge.Forge
	Committer git.Identity
	Fresh     time.Duration // how old a fetch, or a look at the repository, may be that an answer is taken from; 0: each question makes one
	Logger    *slog.Logger
}

// Landings answers whoever looks whether a landing that rests may go on. It moves no task, writes no row, and changes no
// ref; a lease isn't needed for it. It is safe for concurrent use.
type Landings struct {
	cfg   Config
	build build.Builder

	mu      sync.Mutex
	sites   map[target]sited
	checked map[target]checked
	looked  map[int64]look
}

type target struct{ location, branch string }

type sited struct {
	site *build.Site
	at   time.Time
}

// checked is what stood in the way at a look at the repository; nil = nothing.
type checked struct {
	stands *forge.ProblemError
	at     time.Time
}

// look is what a task's work was compared with when it wasn't upstream.
type look struct{ base, head string }

// maxLooked bounds what is remembered of tasks that ended without being asked about again.
const maxLooked = 10_000

// New returns one that has looked at nothing.
func New(cfg Config) *Landings {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Landings{
		cfg: cfg, build: build.Builder{Mirrors: cfg.Mirrors, Forge: cfg.Forge, Committer: cfg.Committer},
		sites: map[target]sited{}, checked: map[target]checked{}, looked: map[int64]look{},
	}
}

// Upstream says whether the work of a task that waits for a person is on its target by now: as the commit that was
// published, as one of its own, or as others that change the same, e.g. a squash. It is for the data root that has the task's
// branch. Work that the target has lost again (a revert) isn't there, by whatever commits it came: who took it back decides how
// the task goes on.
func (l *Landings) Upstream(ctx context.Context, taskID int64) (bool, error) {
	t, def, err := l.task(ctx, taskID)
	if err != nil {
		return false, err
	}
	var ready *attempt.Attempt
	err = db.InTx(ctx, l.cfg.Pool, func(tx pgx.Tx) (err error) {
		ready, err = l.cfg.Store.CurrentTx(ctx, tx, taskID)
		return err
	})
	if err != nil {
		return false, err
	}
	site, err := l.site(ctx, def)
	if err != nil {
		return false, err
	}
	commits, err := l.commits(ctx, site, t, ready)
	if err != nil || len(commits) == 0 {
		return false, err
	}
	now := look{base: site.Base, head: commits[len(commits)-1]}
	if l.knows(taskID, now) {
		return false, nil
	}
	commit, err := site.Already(ctx, commits...)
	if err == nil && commit != "" && ready != nil && ready.BaseOld != "" && slices.Contains(commits, commit) {
		var lost bool
		if lost, err = site.TakenBack(ctx, commit, ready.BaseOld); lost {
			commit = ""
		}
	}
	if err == nil && commit == "" {
		l.remember(taskID, now)
	}
	return err == nil && commit != "", err
}

// commits are those that stand for the task's work and are to be had here, the one that its gates passed last.
func (*Landings) commits(ctx context.Context, site *build.Site, t merge.Task, ready *attempt.Attempt) ([]string, error) {
	var commits []string
	if ready != nil {
		kept, err := site.Kept(ctx, t.Key)
		if err != nil {
			return nil, err
		}
		if kept != "" && kept == ready.LandSHA {
			commits = append(commits, kept)
		}
	}
	if t.Head != "" {
		return append(commits, t.Head), nil
	}
	head, err := site.Head(ctx, t.Source())
	var missing *problem.StepError
	if errors.As(err, &missing) && missing.Code == problem.NoBranch {
		return commits, nil
	}
	return append(commits, head), err
}

// Cleared says whether nothing stands in the way of a landing of the task any more that a look at the repository would
// find. What only the landing itself can meet, e.g. a place that can't be written, isn't seen.
func (l *Landings) Cleared(ctx context.Context, taskID int64) (bool, error) {
	t, def, err := l.task(ctx, taskID)
	if err != nil {
		return false, err
	}
	stands, err := l.check(ctx, forge.Repo{Name: def.Repo.Name, Location: def.Repo.Location, Base: def.Target})
	if err != nil || stands == nil {
		return err == nil, err
	}
	return stands.Code.HindersOnlyLanding() && (!def.Land || !t.Land), nil
}

// check looks at a repository, which for any number of parked landings is one look while it is fresh.
func (l *Landings) check(ctx context.Context, repo forge.Repo) (*forge.ProblemError, error) {
	key := target{repo.Location, repo.Base}
	l.mu.Lock()
	known, ok := l.checked[key]
	l.mu.Unlock()
	if ok && time.Since(known.at) < l.cfg.Fresh {
		return known.stands, nil
	}
	at := time.Now()
	_, err := l.cfg.Forge.Check(ctx, repo)
	stands, is := errors.AsType[*forge.ProblemError](err)
	if err != nil && !is {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checked[key] = checked{stands: stands, at: at}
	return stands, nil
}

func (l *Landings) task(ctx context.Context, id int64) (merge.Task, merge.Definition, error) {
	t, err := l.cfg.Tasks.Load(ctx, id)
	if err != nil {
		return merge.Task{}, merge.Definition{}, fmt.Errorf("load task %d: %w", id, err)
	}
	def, err := l.cfg.Catalog.Definition(ctx, t)
	if err != nil {
		return merge.Task{}, merge.Definition{}, fmt.Errorf("find how to land %s: %w", t.Key, err)
	}
	return t, def, nil
}

// site is the target as it was fetched not long ago.
func (l *Landings) site(ctx context.Context, def merge.Definition) (*build.Site, error) {
	key := target{def.Repo.Location, def.Target}
	l.mu.Lock()
	known, ok := l.sites[key]
	l.mu.Unlock()
	if ok && time.Since(known.at) < l.cfg.Fresh {
		return known.site, nil
	}
	at := time.Now()
	site, err := l.build.Site(ctx, def.Repo, def.Target)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sites[key] = sited{site: site, at: at}
	return site, nil
}

func (l *Landings) knows(task int64, now look) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looked[task] == now
}

// remember keeps what a task's work isn't on, so that nothing is compared again before the target or the work has moved.
func (l *Landings) remember(task int64, now look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.looked) >= maxLooked {
		clear(l.looked)
	}
	l.looked[task] = now
}
