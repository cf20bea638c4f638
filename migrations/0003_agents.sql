-- What agents say of themselves, what they have cost, and what keeps them from being started.

alter table runs
  add column preset         text not null default '',
  add column resumed_from   uuid,                           -- the run whose session it went on with
  add column session_lost   boolean not null default false, -- not to be resumed: the program doesn't know it, or it is too long
  add column cached_tokens  bigint,                         -- of input_tokens
  add column session_total  jsonb,                          -- the program's own totals, where they go on over a resumed session
  add column detail         text not null default '',       -- the sentence that the outcome was read from
  add column error          text not null default '',       -- what went wrong around the program
  add column user_ms        bigint,
  add column system_ms      bigint,
  add column max_rss_bytes  bigint,
  add column slot           smallint,                       -- of its root: the lowest that was free, for ports
  add column orphan_grace_s integer,                        -- its shim ends it after so long without contact; null: it has no such switch
  add column removed_at     timestamptz;                    -- its directory was deleted
create unique index runs_slot on runs (root_id, slot) where state <> 'finished' and slot is not null;
create index runs_session on runs (task_id, stage, agent, finished_at desc) where session_id is not null and not session_lost;
create index runs_living_agent on runs (agent) where state <> 'finished' and purpose = 'agent';
create index tasks_root on tasks (root_id, id) where state = 'active' and root_id is not null;
create index runs_kept on runs (root_id, finished_at) where state = 'finished' and consumed_at is not null and removed_at is null;

-- What agents have used, by day (UTC). Written with the end of each run, kept when runs are forgotten.
create table agent_days (
  day           date not null,
  agent         text collate "C" not null,
  runs          integer not null default 0,
  failed        integer not null default 0,
  cost_usd      numeric(14, 6) not null default 0,
  unpriced      integer not null default 0, -- runs that named no cost
  input_tokens  bigint not null default 0,
  output_tokens bigint not null default 0,
  turns         bigint not null default 0,
  primary key (day, agent)
);

-- An agent is paused for all tasks: by a person, or by what one of its runs met.
alter table pauses drop constraint pauses_scope_check,
  add constraint pauses_scope_check check (scope in ('lane', 'repo', 'agent')),
  add column code  text,        -- what the run met: auth, not_found, quota, rate_limited; null for a person's
  add column until timestamptz; -- over by itself then; null: until a person resumes
