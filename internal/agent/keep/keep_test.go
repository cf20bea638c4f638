package keep_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"orch/internal/agent/keep"
	"orch/internal/process"
	"orch/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a data root with runs of one task.
type world struct {
	t    *testing.T
	pool *pgxpool.Pool
	root uuid.UUID
	dir  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: testdb.New(t), root: uuid.New(), dir: t.TempDir()}
	w.exec(`insert into roots (id, host, path) values ($1, 'here', '/somewhere')`, w.root)
	w.exec(`insert into repositories (name, location) values ('demo', '/demo')`)
	w.exec(`insert into tasks (key, repo, title, source, branch, base_branch, pipeline, stage)
		values ('demo-1', 'demo', 'Title', 'cli', 'orch/demo-1', 'main', 'default', 'development')`)
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// run makes one that ended that long ago, and whose directory takes some space.
func (w *world) run(ago time.Duration, consumed bool, size int) uuid.UUID {
	w.t.Helper()
	id := uuid.New()
	w.exec(`insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, root_id, host, boot_id, pid_namespace,
			state, ended, finished_at, consumed_at)
		select $1, id, 1, 1, 'agent', 'key ' || gen_random_uuid(), stage, 1, 1, $2, 'here', 'boot', 'ns', 'finished', 'exited',
			now() - make_interval(secs => $3), case when $4 then now() end from tasks`, id, w.root, ago.Seconds(), consumed)
	if ok, err := process.Forbid(w.path(id)); err != nil || !ok {
		w.t.Fatal(ok, err)
	}
	if err := os.WriteFile(filepath.Join(w.path(id), "log"), make([]byte, size), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) path(id uuid.UUID) string { return filepath.Join(w.dir, id.String()) }

func (w *world) sweep(age time.Duration, size int64, removed int) {
	w.t.Helper()
	k := keep.New(keep.Config{Pool: w.pool, Root: w.root, Dir: w.dir, Age: age, Size: size, Logger: slog.New(slog.DiscardHandler)})
	if n, err := k.Sweep(w.t.Context()); err != nil || n != removed {
		w.t.Errorf("%d removed, %v; want %d", n, err, removed)
	}
}

// kept compares the directories that are there, and what the table says of them.
func (w *world) kept(want ...uuid.UUID) {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var there []string
	for _, entry := range entries {
		there = append(there, entry.Name())
	}
	rows, err := w.pool.Query(w.t.Context(), `select id::text from runs where removed_at is null order by id::text`)
	if err != nil {
		w.t.Fatal(err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, id := range want {
		names = append(names, id.String())
	}
	slices.Sort(names)
	if !slices.Equal(there, names) || !slices.Equal(known, names) {
		w.t.Errorf("there %v\nknown %v\nwant  %v", there, known, names)
	}
}

const (
	day = 24 * time.Hour
	mib = 1 << 20
)

func TestRunsGoByAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(20*day, true, 1)
	w.run(15*day, true, 1)
	young := w.run(13*day, true, 1)
	w.sweep(14*day, 0, 2)
	w.kept(young)
	w.sweep(14*day, 0, 0)
}

func TestTheOldestGoWhenAllTakeTooMuch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 3 {
		w.run(time.Duration(10-n)*day, true, mib)
	}
	newest := w.run(time.Hour, true, mib)
	w.sweep(14*day, 2*mib, 3)
	w.kept(newest)
}

func TestARunWhoseResultNobodyUsedIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unused := w.run(100*day, false, mib)
	w.sweep(day, 1, 0)
	w.kept(unused)
}

func TestARunWithALivingShimIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held := w.run(100*day, true, 1)
	w.run(90*day, true, 1)
	hold, err := process.TakeHold(w.path(held))
	if err != nil {
		t.Fatal(err)
	}
	w.sweep(day, 0, 1)
	w.kept(held)
	hold.Release()
	w.sweep(day, 0, 1)
	w.kept()
}

func TestADirectoryThatIsGoneIsNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.run(100*day, true, 1)
	if err := os.RemoveAll(w.path(id)); err != nil {
		t.Fatal(err)
	}
	w.sweep(day, 0, 1)
	w.kept()
}

func TestRunsOfOtherRootsAreNotTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.run(100*day, true, 1)
	other := uuid.New()
	w.exec(`insert into roots (id, host, path) values ($1, 'there', '/elsewhere')`, other)
	w.exec(`update runs set root_id = $1`, other)
	w.sweep(day, 1, 0)
	w.kept(id)
}
