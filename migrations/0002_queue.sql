-- What the queue needs to leave work alone: repositories that a worker doesn't serve, and what a person has paused.

alter table jobs add column repo text collate "C" not null default ''; -- repository it works on, '' when on none
update jobs j set repo = t.repo from tasks t where t.id = j.task_id;

-- Queued jobs, cut into levels: what a claim may take, of one repository and one priority, in the order in which it is due.
-- What it may not take (unhandled kinds, other roots' pins, repositories served elsewhere or paused) is never walked, nor is
-- what isn't due. The zero root stands for none, so that one comparison finds either. Jobs with a concurrency key are apart
-- from those without: only their levels can have a head that is held back, and jobs_queued_keyed leads around it, key by key.
drop index jobs_queued, jobs_queued_pinned, jobs_queued_keyed;
create index jobs_queued on jobs (lane, kind, coalesce(pinned_root, '00000000-0000-0000-0000-000000000000'),
    (concurrency_key is not null), repo, priority desc, run_at, id)
  where state = 'queued';
create index jobs_queued_keyed on jobs (lane, concurrency_key, kind, coalesce(pinned_root, '00000000-0000-0000-0000-000000000000'),
    repo, priority desc, run_at, id)
  where state = 'queued' and concurrency_key is not null;
-- Queued jobs whose run may be alive. They come first, whatever is paused.
create index jobs_queued_followed on jobs (lane, pinned_root, priority desc, run_at, id)
  where state = 'queued' and run_id is not null;

-- Only a running job has a worker. Said so, no plan takes jobs_running, which may look empty to the planner and be full of
-- dead entries, to find whether a key is busy.
drop index jobs_concurrency;
create unique index jobs_concurrency on jobs (concurrency_key) where concurrency_key is not null and worker_id is not null;
alter table jobs add constraint jobs_worker_runs check (worker_id is null or state = 'running');

-- Lanes and repositories of which nothing new is begun until a person resumes them.
create table pauses (
  scope  text collate "C" not null check (scope in ('lane', 'repo')),
  name   text collate "C" not null check (name <> ''),
  reason text not null,
  actor  text not null,
  at     timestamptz not null default clock_timestamp(),
  primary key (scope, name)
);

-- When a job that is queued again and again, such as the prune, was queued last, by whichever process.
create table schedules (
  name    text primary key,
  last_at timestamptz not null
);

-- What a worker serves, and the newest migration that its program knows.
alter table workers
  add column repos  text[] not null default '{}',
  add column schema integer not null default 0;

-- A migration that waits for workers of older programs to stop: they see it with their next beat.
alter table instance
  add column migrating_to    integer,
  add column migrating_until timestamptz;

comment on column roots.nonce is
  'of the bump that made the generation; the marker has the same one, or names it as next while it isn''t confirmed';
