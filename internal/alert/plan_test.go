package alert

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"orch/internal/testdb"
)

// The statistics of a queue are always wrong: here they are of a moment at which alerts were all that there was.
func TestLooksAtAlertsReadNoOtherJobs(t *testing.T) {
	t.Parallel()
	pool := testdb.New(t)
	o := NewOutbox(Config{Pool: pool, Channels: []string{"telegram"}})
	for _, sql := range []string{
		`insert into jobs (kind, lane, max_attempts, concurrency_key, run_at) select 'alert.telegram', 'system', 3, 'alert.telegram', now() - interval '1 minute' from generate_series(1, 50)`,
		`analyze jobs`,
		`insert into jobs (kind, lane, max_attempts) select 'stage', 'agents', 3 from generate_series(1, 20000)`,
		`insert into jobs (kind, lane, max_attempts) select 'jobs.prune', 'system', 3 from generate_series(1, 10000)`,
		`update jobs set args = '{"kind":"task_blocked","code":"auth"}', phase = 'alert_sum' where kind = 'alert.telegram'`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	turn := &Turn{channel: "telegram", alert: Alert{Kind: TaskBlocked, Code: "auth"}}
	for sql, args := range map[string]pgx.NamedArgs{pendingSQL: o.args(), dueSQL: o.args(), rateSQL: turn.rateArgs(), gatherSQL: turn.args(TaskBlocked)} {
		rows, err := pool.Query(t.Context(), `explain (analyze, costs off) `+sql, args)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan on jobs") || strings.Contains(plan, "Sort Key") || !strings.Contains(plan, "jobs_queued") {
			t.Error(plan)
		}
	}
	if s, err := o.Snapshot(t.Context()); err != nil || s.Pending != 50 {
		t.Errorf("%+v, %v", s, err)
	}
}
