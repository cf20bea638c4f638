-- The database of orch. Migrations are up-only; a landed file is never edited.
--
-- The database's clock is the only clock. Process start times are clock ticks after the boot named by boot_id,
-- so that (boot_id, pid, pid_started_at) names one process for ever.

-- One row: what this database is, and how far its set-up got.
create table instance (
  singleton  boolean primary key default true check (singleton),
  id         uuid not null default gen_random_uuid(),
  setup      text not null default 'unconfigured' check (setup in ('unconfigured', 'bootstrapping', 'ready')),
  testing    boolean not null default false,
  created_at timestamptz not null default now()
);
insert into instance default values;

-- Data roots that work on this database. generation grows by one at each start that claims; nonce names a bump
-- that is written to the marker but not confirmed yet.
create table roots (
  id         uuid primary key,
  host       text not null,
  path       text not null,
  generation bigint not null default 0 check (generation >= 0),
  nonce      uuid,
  bound_at   timestamptz not null default now(),
  seen_at    timestamptz not null default now()
);

-- One row per boot of a worker process, so that others can tell whose process died.
create table workers (
  id             uuid primary key,
  root_id        uuid not null references roots (id),
  host           text not null,
  boot_id        text not null,
  pid_namespace  text not null,
  pid            integer not null check (pid > 0),
  pid_started_at bigint not null,
  version        text not null,
  lanes          text[] not null,
  started_at     timestamptz not null default now(),
  heartbeat_at   timestamptz not null default now(),
  stopped_at     timestamptz
);
create index workers_root on workers (root_id) where stopped_at is null;

create type job_state as enum ('queued', 'running', 'succeeded', 'failed', 'cancelled');

-- The queue. Every write on behalf of a running job is conditional on (id, state = 'running', worker_id, epoch).
-- No index covers a column that a heartbeat writes (lease_expires_at, heartbeat_at, phase, progress): beats stay HOT.
create table jobs (
  id                  bigint generated always as identity primary key,
  kind                text collate "C" not null check (kind <> ''),
  lane                text collate "C" not null check (lane <> ''),
  args                jsonb not null default '{}',
  state               job_state not null default 'queued',
  priority            smallint not null default 0,
  run_at              timestamptz not null default now(),
  waiting_since       timestamptz,
  attempt             smallint not null default 0 check (attempt >= 0),
  max_attempts        smallint not null check (max_attempts > 0),
  recoveries          smallint not null default 0 check (recoveries >= 0),
  epoch               integer not null default 0 check (epoch >= 0),
  worker_id           uuid,
  root_id             uuid,
  host                text,
  boot_id             text,
  pid                 integer,
  pid_started_at      bigint,
  lease_expires_at    timestamptz,
  heartbeat_at        timestamptz,
  phase               text,
  cancel_requested_at timestamptz,
  progress            jsonb,
  dedupe_key          text collate "C",
  concurrency_key     text collate "C",
  pinned_root         uuid,
  task_id             bigint,
  run_id              uuid,
  error_code          text,
  error               text,
  created_at          timestamptz not null default now(),
  started_at          timestamptz,
  finished_at         timestamptz,
  constraint jobs_running_has_lease check ((state = 'running') = (worker_id is not null and lease_expires_at is not null)),
  constraint jobs_running_has_epoch check (state <> 'running' or epoch > 0),
  constraint jobs_terminal_is_finished check ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null))
);
-- Queued jobs, cut so that a head that can't be claimed (one busy key, another root's pins, an unhandled kind) is never walked.
create index jobs_queued on jobs (lane, kind, priority desc, run_at, id)
  where state = 'queued' and concurrency_key is null and pinned_root is null;
create index jobs_queued_pinned on jobs (lane, kind, pinned_root, priority desc, run_at, id)
  where state = 'queued' and concurrency_key is null and pinned_root is not null;
create index jobs_queued_keyed on jobs (lane, concurrency_key, priority desc, run_at, id)
  where state = 'queued' and concurrency_key is not null;
create index jobs_running on jobs (id) where state = 'running';
create unique index jobs_dedupe on jobs (dedupe_key) where dedupe_key is not null and state in ('queued', 'running');
create unique index jobs_concurrency on jobs (concurrency_key) where concurrency_key is not null and state = 'running';
create index jobs_failed on jobs (lane, kind) where state = 'failed';
create index jobs_task on jobs (task_id, id) where task_id is not null;
create index jobs_finished on jobs (finished_at) where state in ('succeeded', 'cancelled');

-- How many jobs ever reached a terminal state, written with the transition. Spread over shards so that two
-- transitions seldom wait for one row.
create table job_totals (
  kind  text not null,
  state job_state not null,
  shard smallint not null,
  total bigint not null default 0,
  primary key (kind, state, shard)
);

-- Other totals since the database was made, e.g. landed_total.
create table counters (
  name  text primary key,
  total bigint not null default 0
);

-- Repositories that tasks were made for; last_number counts their keys (<repo>-<n>).
create table repositories (
  name        text primary key check (name <> ''),
  location    text not null,
  last_number integer not null default 0,
  created_at  timestamptz not null default now()
);

create table tasks (
  id            bigint generated always as identity primary key,
  key           text not null unique,
  repo          text not null references repositories (name),
  title         text not null check (title <> ''),
  body          text not null default '',
  source        text not null check (source in ('forge', 'api', 'cli')),
  branch        text not null,
  base_branch   text not null,
  pull_request  bigint,
  pipeline      text not null,
  stage         text not null,
  state         text not null default 'active' check (state in ('active', 'waiting', 'blocked', 'done', 'cancelled')),
  waiting_for   text,
  reason_code   text,
  reason        text,
  round         integer not null default 1 check (round > 0),
  feedback      text not null default '',
  priority      smallint not null default 0,
  after_tasks   bigint[] not null default '{}',
  allowed_paths text[] not null default '{}',
  max_cost_usd  numeric(12, 4),
  land          boolean not null default true,
  overrides     jsonb not null default '{}',
  root_id       uuid references roots (id), -- where its branch and workspace are, once work on it has begun
  passed_commit text,                       -- what the gates of its last finished stage judged
  landed_commit text,
  created_at    timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  finished_at   timestamptz,
  constraint tasks_ended_is_finished check ((state in ('done', 'cancelled')) = (finished_at is not null)),
  constraint tasks_blocked_says_why check (state <> 'blocked' or reason_code is not null)
);
create index tasks_open on tasks (id) where state in ('active', 'waiting', 'blocked');
create index tasks_repo on tasks (repo, id);

-- Append-only: who did what to a task, when and why.
create table task_events (
  id      bigint generated always as identity primary key,
  task_id bigint not null references tasks (id),
  at      timestamptz not null default clock_timestamp(),
  actor   text not null,
  kind    text not null,
  reason  text not null default '',
  data    jsonb not null default '{}'
);
create index task_events_task on task_events (task_id, id);

-- One execution of a program under a shim: an agent, a gate's command or a merge test. key says what it is for;
-- the newest unconsumed run of a task and key is the one to follow, so at most one exists.
create table runs (
  id             uuid primary key,
  task_id        bigint not null references tasks (id),
  job_id         bigint not null,
  job_epoch      integer not null,
  purpose        text not null check (purpose in ('agent', 'gate', 'merge')),
  key            text not null,
  stage          text not null,
  round          integer not null,
  attempt        integer not null,
  agent          text not null default '',
  state          text not null default 'intended' check (state in ('intended', 'running', 'finished')),
  root_id        uuid not null references roots (id),
  host           text not null,
  boot_id        text not null,
  pid_namespace  text not null,
  shim_pid       integer,
  pid            integer,
  pid_started_at bigint,
  created_at     timestamptz not null default now(),
  started_at     timestamptz,
  finished_at    timestamptz,
  consumed_at    timestamptz,
  exit_code      integer,
  signal         text,
  ended          text,
  outcome        text,
  reset_at       timestamptz,
  session_id     text,
  summary        text not null default '',
  question       text not null default '',
  cost_usd       numeric(12, 6),
  input_tokens   bigint,
  output_tokens  bigint,
  turns          integer,
  log_bytes      bigint not null default 0,
  constraint runs_finished_says_how check ((state = 'finished') = (finished_at is not null and ended is not null)),
  constraint runs_consumed_is_finished check (consumed_at is null or state = 'finished')
);
create unique index runs_unconsumed on runs (task_id, key) where consumed_at is null;
create index runs_task on runs (task_id, created_at);
create index runs_open on runs (root_id) where state <> 'finished';

-- What a gate saw. Reused only when it passed, for the same tree and the same definition.
create table gate_evidence (
  id          bigint generated always as identity primary key,
  task_id     bigint not null references tasks (id),
  stage       text not null,
  round       integer not null,
  name        text not null,
  definition  text not null,
  commit_sha  text not null,
  tree        text not null,
  outcome     text not null check (outcome in ('pass', 'fail', 'pending')),
  reason      text not null default '',
  exit_code   integer,
  duration_ms bigint not null default 0,
  output_tail text not null default '',
  run_id      uuid,
  at          timestamptz not null default clock_timestamp()
);
create index gate_evidence_passed on gate_evidence (tree, definition) where outcome = 'pass';
create index gate_evidence_task on gate_evidence (task_id, id);

-- The right to land on a target branch. A lease whose job isn't running under job_epoch may be taken by anyone.
create table merge_leases (
  repo           text not null,
  target         text not null,
  epoch          bigint not null check (epoch > 0),
  task_id        bigint,
  branch         text,
  job_id         bigint,
  job_epoch      integer,
  worker_id      uuid,
  root_id        uuid,
  host           text,
  boot_id        text,
  pid_namespace  text,
  pid            integer,
  pid_started_at bigint,
  acquired_at    timestamptz,
  renewed_at     timestamptz,
  primary key (repo, target),
  constraint merge_leases_held_by_a_job check ((job_id is null) = (renewed_at is null) and (job_id is null) = (acquired_at is null))
);

-- One landing of one task, step by step. The open attempt of a task is the one without finished_at.
create table merge_attempts (
  id           bigint generated always as identity primary key,
  task_id      bigint not null references tasks (id),
  job_id       bigint not null,
  job_epoch    integer not null,
  repo         text not null,
  target       text not null,
  branch       text not null,
  step         text not null default 'queued'
    check (step in ('queued', 'preparing', 'testing', 'ready', 'landing', 'landed', 'finalised', 'parked', 'returned')),
  method       text not null,
  base_old     text,
  head_sha     text,
  land_sha     text,
  land_tree    text,
  definition   text,
  evidence_id  bigint,
  lease_epoch  bigint,
  tries        integer not null default 0,
  last_error   text,
  next_look_at timestamptz,
  created_at   timestamptz not null default now(),
  updated_at   timestamptz not null default now(),
  finished_at  timestamptz,
  constraint merge_attempts_ended_is_finished check ((step in ('finalised', 'parked', 'returned')) = (finished_at is not null)),
  constraint merge_attempts_intent_is_whole check (step not in ('landing', 'landed')
    or (base_old is not null and head_sha is not null and land_sha is not null and land_tree is not null))
);
create unique index merge_attempts_open on merge_attempts (task_id) where finished_at is null;
create index merge_attempts_queue on merge_attempts (repo, target, id) where finished_at is null;
