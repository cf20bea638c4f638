package merge

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/forge"
	"orch/internal/merge/problem"
	"orch/internal/queue"
)

// taskTable is the task store as a landing sees it, on the real tables.
type taskTable struct {
	pool *pgxpool.Pool
	head map[int64]string // commits that the gates passed, where they are known
	root uuid.UUID        // in whose mirror the branches are; zero = any
}

func (s *taskTable) Load(ctx context.Context, id int64) (Task, error) {
	t := Task{ID: id, Head: s.head[id], Root: s.root}
	err := s.pool.QueryRow(ctx, `select key, repo, location, title, branch, base_branch, stage, round, priority, land,
		state in ('active', 'waiting') from tasks join repositories on name = repo where id = $1`, id).Scan(&t.Key, &t.Repo,
		&t.Location, &t.Title, &t.Branch, &t.BaseBranch, &t.Stage, &t.Round, &t.Priority, &t.Land, &t.Open)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, ErrSuperseded
	}
	return t, err
}

func (s *taskTable) IntentTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t Task) error {
	var current bool
	err := tx.QueryRow(ctx, `select state = 'active' and stage = $2 and round = $3 from tasks where id = $1 for update`,
		t.ID, t.Stage, t.Round).Scan(&current)
	if err == nil && !current {
		return ErrSuperseded
	}
	return err
}

func (s *taskTable) LandedTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t Task, landed Landed) (bool, error) {
	kind := "landed"
	switch {
	case landed.Nothing:
		kind = "nothing"
	case landed.Upstream:
		kind = "upstream"
	}
	return false, s.move(ctx, tx, t, kind, `state = 'done', finished_at = now(), landed_commit = nullif($2, '')`, landed.Commit)
}

func (s *taskTable) ReturnTx(ctx context.Context, tx pgx.Tx, l *queue.Lease, t Task, r Return) error {
	if err := l.CompleteTx(ctx, tx); err != nil {
		return err
	}
	if err := s.move(ctx, tx, t, "returned", `stage = 'development', round = round + 1, feedback = $2`, r.Feedback); err != nil {
		return err
	}
	in, err := queue.EnqueueTx(ctx, tx, queue.Insert{Kind: "stage", Lane: "agents", TaskID: t.ID, DedupeKey: queue.TaskKey(t.ID)})
	if err == nil && in.Duplicate {
		err = errors.New("the merge job still has the task's key")
	}
	return err
}

func (s *taskTable) BlockTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t Task, code, reason string) error {
	return s.move(ctx, tx, t, "blocked", `state = 'blocked', reason_code = $2, reason = $3`, code, reason)
}

func (s *taskTable) ReadyTx(ctx context.Context, tx pgx.Tx, _ *queue.Lease, t Task, r Ready) error {
	return s.move(ctx, tx, t, "ready", `state = 'waiting', waiting_for = $2`, "person:"+r.Commit)
}

func (s *taskTable) move(ctx context.Context, tx pgx.Tx, t Task, kind, set string, args ...any) error {
	tag, err := tx.Exec(ctx, `update tasks set `+set+` where id = $1`, append([]any{t.ID}, args...)...)
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("no such task")
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into task_events (task_id, actor, kind) values ($1, 'test', $2)`, t.ID, kind)
	return err
}

// shellTester runs a command in a real checkout of exactly the commit, and keeps green evidence by tree.
type shellTester struct {
	w       *world
	command string
	during  func(ctx context.Context) error // before the command, when set

	mu     sync.Mutex
	tested []string // commits, in order
}

func (s *shellTester) Test(ctx context.Context, l *queue.Lease, r TestRequest) (TestResult, error) {
	s.mu.Lock()
	s.tested = append(s.tested, r.Commit)
	s.mu.Unlock()
	if s.during != nil {
		if err := s.during(ctx); err != nil {
			return TestResult{}, err
		}
	}
	m, err := s.w.Open(ctx, forge.Repo{})
	if err != nil {
		return TestResult{}, err
	}
	dir := filepath.Join(s.w.t.TempDir(), "checkout")
	if err := m.Checkout(ctx, dir, r.Commit); err != nil {
		return TestResult{}, err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return TestResult{Reason: s.command + " failed", OutputTail: string(out)}, nil //nolint:nilerr // red is a result
	}
	result := TestResult{Green: true}
	err = l.Tx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `insert into gate_evidence (task_id, stage, round, name, definition, commit_sha, tree, outcome)
			values ($1, $2, $3, 'test', $4, $5, $6, 'pass') returning id`,
			r.TaskID, r.Stage, r.Round, s.command, r.Commit, r.Tree).Scan(&result.EvidenceID)
	})
	return result, err
}

func (s *shellTester) commits() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tested...)
}

var errTooLate = errors.New("the landing has started")

// cancel ends a task as a person would: its job and row are locked, and the landing's intent is asked for.
func (w *world) cancel(ctx context.Context, task int64) error {
	return db.InTx(ctx, w.pool, func(tx pgx.Tx) error {
		job, err := queue.ActiveForTaskTx(ctx, tx, task)
		if err != nil {
			return err
		}
		var ended bool
		if err := tx.QueryRow(ctx, `select state in ('done', 'cancelled') from tasks where id = $1 for update`, task).Scan(&ended); err != nil {
			return err
		}
		if ended {
			return errTooLate
		}
		started, err := w.store.LandingStartedTx(ctx, tx, task)
		if err != nil {
			return err
		}
		if started {
			return errTooLate
		}
		if err := w.store.AbandonTx(ctx, tx, task, problem.Cancelled); err != nil {
			return err
		}
		if job != nil {
			if _, err := queue.CancelTx(ctx, tx, job.ID); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `update tasks set state = 'cancelled', finished_at = now() where id = $1`, task)
		return err
	})
}

// logBuffer collects log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
