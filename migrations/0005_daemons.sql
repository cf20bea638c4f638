-- What the reaper, the reconciler and the metrics ask for.

-- The newest of what is told one at a time in GET /queue, written in the transaction of its cause: last_reaped, last_repaired.
create table latest (
  name text primary key,
  at   timestamptz not null default clock_timestamp(),
  data jsonb not null
);

create index workers_boot on workers (boot_id, pid_namespace) where stopped_at is null; -- who else was in a container
create index runs_job on runs (job_id, finished_at);                                    -- since when a job has run without one
-- What has ended since somebody last looked.
create index runs_ended on runs (finished_at, id) where state = 'finished';
create index gate_evidence_at on gate_evidence (at, id);
create index merge_attempts_ended on merge_attempts (finished_at, id) where finished_at is not null;
create index merge_attempts_task on merge_attempts (task_id, id desc);                  -- how a task's landing last went

-- What was told to a person and isn't to be told again for a while, by whichever process.
create table alerts_told (
  key text primary key,
  at  timestamptz not null
);
