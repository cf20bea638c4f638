package metrics_test

import (
	"context"
	"testing"
	"time"
)

// Rows count once: those of one moment that don't fit a page, those of a transaction that commits after later ones were
// written, and none from before the process.
func TestHistogramsCountEachRowOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`insert into jobs (kind, lane, max_attempts, state, started_at, finished_at)
		values ('work', 'agents', 3, 'succeeded', now() - interval '1 hour', now() - interval '1 minute')`)
	b.look()
	count := with("orch_queue_wait_seconds_count", "lane", "agents")
	if n := b.scrape().values[count]; n != 0 {
		t.Fatalf("%v jobs from before the process", n)
	}

	slow, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slow.Rollback(context.WithoutCancel(t.Context())) })
	if _, err := slow.Exec(t.Context(), endedJob, "agents", 1); err != nil {
		t.Fatal(err)
	}
	b.exec(endedJob, "agents", 12_000) // all in the same microsecond
	var ended time.Time
	if err := b.pool.QueryRow(t.Context(), `select max(finished_at) from jobs`).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	b.wait("the later rows are settled but for the open transaction", func() (past bool) {
		b.look()
		if err := b.pool.QueryRow(t.Context(), `select clock_timestamp() > $1::timestamptz + interval '2 seconds'`, ended).Scan(&past); err != nil {
			t.Fatal(err)
		}
		return past
	})
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.until(count, 12_001)
	for range 3 {
		b.look()
	}
	b.has(b.scrape(), map[string]float64{
		count: 12_001,
		with("orch_queue_wait_seconds_sum", "lane", "agents"):                12_001 * 20,
		with("orch_queue_wait_seconds_bucket", "lane", "agents", "le", "15"): 0,
		with("orch_queue_wait_seconds_bucket", "lane", "agents", "le", "60"): 12_001,
	})
}

func TestHistogramsAreOfWhatTookHowLong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.task()
	b.look()
	b.exec(endedRun, "agent", "coder", "ok")
	b.exec(endedRun, "agent", "coder", "timeout")
	b.exec(endedRun, "gate", "", "ok")
	b.exec(`insert into runs (id, task_id, job_id, job_epoch, purpose, key, stage, round, attempt, agent, state, root_id, host, boot_id,
			pid_namespace, finished_at, consumed_at, ended, outcome)
		select gen_random_uuid(), (select min(id) from tasks), 1, 1, 'agent', 'n', 'development', 1, 1, 'coder', 'finished', id,
			'h', 'b', 'ns', clock_timestamp(), clock_timestamp(), 'never', 'never_started' from roots`)
	b.exec(`insert into jobs (kind, lane, max_attempts, state, run_at, finished_at)
		values ('work', 'agents', 3, 'cancelled', now() + interval '1 hour', clock_timestamp())`) // never taken: it waited for nothing
	b.exec(gateAnswer, "command", "fail")
	b.exec(endedLanding, "finalised")
	b.exec(endedLanding, "parked")
	b.until(with("orch_landing_seconds_count", "result", "parked"), 1)
	e := b.scrape()
	b.has(e, map[string]float64{
		with("orch_run_seconds_count", "agent", "coder", "purpose", "agent"):  2,
		with("orch_run_seconds_sum", "agent", "coder", "purpose", "agent"):    180,
		with("orch_run_seconds_count", "agent", "", "purpose", "gate"):        1,
		with("orch_runs_total", "agent", "coder", "outcome", "ok"):            1,
		with("orch_runs_total", "agent", "coder", "outcome", "timeout"):       1,
		with("orch_runs_total", "agent", "coder", "outcome", "never_started"): 1,
		with("orch_gate_seconds_sum", "gate", "command", "outcome", "fail"):   2.5,
		with("orch_landing_seconds_sum", "result", "landed"):                  1200,
		with("orch_landing_seconds_bucket", "result", "parked", "le", "600"):  0,
		with("orch_landing_seconds_bucket", "result", "parked", "le", "1200"): 1,
	})
	if _, is := e.values[with("orch_queue_wait_seconds_count", "lane", "agents")]; is {
		t.Error("a job that was never taken has waited")
	}
	if at := e.values["orch_tail_last_look_timestamp_seconds"]; time.Since(time.Unix(int64(at), 0)).Abs() > time.Minute {
		t.Errorf("the last look was at %v", at)
	}
}

func TestRunGoesOnWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pool.Close()
	if err := b.m.Look(t.Context()); err == nil {
		t.Error("a look at nothing")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := b.m.Run(ctx, func() { cancel(nil) }); err != nil {
		t.Error(err)
	}
}
