package merge

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/db"
	"orch/internal/testdb"
	"orch/migrations"
)

// migrate brings a database to a schema; 0 is the newest.
func migrate(t *testing.T, pool *pgxpool.Pool, to int) {
	t.Helper()
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(names) < to {
		t.Fatalf("%v, %v", names, err)
	}
	files := fstest.MapFS{}
	for i, name := range names {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if to == 0 || i < to {
			files[name] = &fstest.MapFile{Data: text}
		}
	}
	m, err := db.NewMigrator(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := m.Apply(context.Background(), conn.Conn()); err != nil {
		t.Fatal(err)
	}
}

// An orch that knew no groups wrote an intent and went down: the one that comes after the upgrade brings it to its end.
func TestIntentOfAnOlderSchemaIsResolved(t *testing.T) {
	t.Parallel()
	for name, moved := range map[string]bool{"before the move": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig("sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig = testdb.Empty(t)
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			migrate(t, pool, 3)
			w := newWorldOn(t, true, pool)
			task := w.add(map[string]string{"a": "a"})
			head, base := w.branch(task), w.main()
			if err := w.openMirror().SetRef(t.Context(), "refs/orch/land/"+w.key(task), head, ""); err != nil {
				t.Fatal(err)
			}
			tree, err := w.openMirror().Tree(t.Context(), head)
			if err != nil {
				t.Fatal(err)
			}
			w.exec(`insert into merge_attempts (task_id, job_id, job_epoch, repo, target, branch, step, method, base_old, head_sha, land_sha, land_tree,
					definition, evidence_id, lease_epoch, tries)
				select $1, id, 1, $2, 'main', $3, 'landing', 'fast-forward', $4, $5, $5, $6, 'true', 7, 3, 40 from jobs where task_id = $1`,
				task, repoName, "orch/"+w.key(task), base, head, tree)
			w.exec(`insert into merge_leases (repo, target, epoch) values ($1, 'main', 3)`, repoName)
			if moved {
				w.repo.Git("fetch", "-q", w.mirror, head)
				w.repo.Git("update-ref", "refs/heads/main", head, base)
			}
			migrate(t, pool, 0)
			w.drain(w.handler(nil))
			w.landedOnce(task, "a")
			if got := w.tester.commits(); len(got) != 0 || w.main() != head {
				t.Errorf("tested %v, main is %s, want %s", got, w.main(), head)
			}
		})
	}
}
