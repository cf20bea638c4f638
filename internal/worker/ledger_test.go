package worker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"orch/internal/queue"
)

// watchSQL makes the database itself a witness: every transition of a job is recorded after it held its indexes, so the
// order of the rows of one job, or one concurrency key, is the order in which it happened; what must never happen is
// recorded as a violation. Handlers write to work in their leases' transactions.
const watchSQL = `
create table transitions (
  id bigint generated always as identity primary key,
  job bigint not null, key text, was job_state not null, became job_state not null, epoch integer not null, worker uuid);
create table work (job bigint not null, epoch integer not null, worker uuid not null, step text not null);
create table violations (job bigint not null, what text not null);

create function watch_job() returns trigger language plpgsql as $$
begin
  if new.epoch < old.epoch then
    insert into violations values (new.id, 'the epoch went back');
  end if;
  if old.state in ('succeeded', 'failed', 'cancelled') then
    insert into violations values (new.id, format('%s became %s', old.state, new.state));
  end if;
  if new.state = 'running' and new.epoch <= old.epoch then
    insert into violations values (new.id, 'granted, or taken over, without a new epoch');
  end if;
  if new.state = 'running' and new.concurrency_key is not null and exists (
      select from jobs where state = 'running' and concurrency_key = new.concurrency_key and id <> new.id) then
    insert into violations values (new.id, 'runs beside another job of its key');
  end if;
  insert into transitions (job, key, was, became, epoch, worker)
  values (new.id, new.concurrency_key, old.state, new.state, new.epoch, coalesce(new.worker_id, old.worker_id));
  return null;
end $$;
create trigger watch_job after update on jobs for each row
  when ((old.state, old.epoch, old.worker_id) is distinct from (new.state, new.epoch, new.worker_id))
  execute function watch_job();

create function watch_work() returns trigger language plpgsql as $$
begin
  if not exists (select from jobs where id = new.job and state = 'running' and epoch = new.epoch and worker_id = new.worker) then
    insert into violations values (new.job, format('epoch %s wrote without the lease', new.epoch));
  end if;
  return null;
end $$;
create trigger watch_work after insert on work for each row execute function watch_work();

create function watch_commit() returns trigger language plpgsql as $$
begin
  if (select epoch from jobs where id = new.job) <> new.epoch then
    insert into violations values (new.job, format('epoch %s committed after it was over', new.epoch));
  end if;
  return null;
end $$;
create constraint trigger watch_commit after insert on work deferrable initially deferred
  for each row execute function watch_commit();
`

func watch(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), watchSQL); err != nil {
		t.Fatal(err)
	}
}

// note is what a handler does: a write that only the holder's transaction may keep.
func note(ctx context.Context, tx pgx.Tx, l *queue.Lease, step string) error {
	_, err := tx.Exec(ctx, `insert into work values ($1, $2, $3, $4)`, l.Job().ID, l.Job().Epoch, l.Worker().ID, step)
	return err
}

func noted(ctx context.Context, l *queue.Lease, step string) error {
	return l.Tx(ctx, func(tx pgx.Tx) error { return note(ctx, tx, l, step) })
}

// verdicts are questions whose answers must be empty once all jobs have ended.
var verdicts = map[string]string{
	"violations": `select format('job %s: %s', job, what) from violations`,
	"jobs that haven't ended": `
		select format('job %s is %s', id, state) from jobs where state in ('queued', 'running')`,
	"jobs that didn't end exactly once": `
		select format('job %s: %s ends', j.id, count(t.id)) from jobs j
		left join transitions t on t.job = j.id and t.became in ('succeeded', 'failed', 'cancelled')
		group by j.id having count(t.id) <> 1`,
	"totals that don't match": `
		select format('%s %s: %s of %s', kind, state, coalesce(total, 0), ended)
		from (select kind, state, count(*) as ended from jobs group by kind, state) j
		full join (select kind, state, sum(total) as total from job_totals group by kind, state) t using (kind, state)
		where coalesce(total, 0) <> coalesce(ended, 0)`,
	"keys that ran twice at once": `
		select format('key %s: %s then %s', key, before, became)
		from (select key, became, was, lag(became) over (partition by key order by id) as before
		      from transitions where key is not null and (was = 'running' or became = 'running')) t
		where became = 'running' and before = 'running'`,
	"jobs that two held at once": `
		select format('job %s: %s then %s', job, before, became)
		from (select job, became, was, lag(became) over (partition by job order by id) as before from transitions) t
		where was <> coalesce(before, 'queued')`,
	"ends that were written twice": `
		select format('job %s: %s times', job, count(*)) from work where step = 'end' group by job having count(*) > 1`,
	"successes without their work": `
		select format('job %s, epoch %s', j.id, j.epoch) from jobs j
		where j.state = 'succeeded' and not exists (select from work w where w.job = j.id and w.epoch = j.epoch)`,
	"ends without their success": `
		select format('job %s is %s', w.job, j.state) from work w join jobs j on j.id = w.job
		where w.step = 'end' and (j.state <> 'succeeded' or j.epoch <> w.epoch)`,
}

// judge asks all of them.
func judge(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for what, sql := range verdicts {
		rows, err := pool.Query(t.Context(), sql+` limit 10`)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if len(found) > 0 {
			t.Errorf("%s:\n%s", what, strings.Join(found, "\n"))
		}
	}
}

// tally says what happened, for people.
func tally(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		select format('%s %s→%s', count(*), was, became) from transitions group by was, became order by was, became`)
	if err != nil {
		t.Fatal(err)
	}
	moves, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	var jobs, work, violations int
	err = pool.QueryRow(t.Context(), `select (select count(*) from jobs), (select count(*) from work), (select count(*) from violations)`).
		Scan(&jobs, &work, &violations)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d jobs, %d fenced writes, %s, %d violations", jobs, work, strings.Join(moves, ", "), violations)
}
