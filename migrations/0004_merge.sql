-- Landing in groups, by whoever can reach the repository, with what it met counted apart.
alter table merge_attempts
  add column tip_sha      text,        -- what the target moves to: land_sha, or the last commit of its group
  add column tip_tree     text,
  add column group_id     bigint,      -- the attempt that leads its group; null: it is alone
  add column group_most   smallint,    -- after a red group: the largest that it may be tested in
  add column reds         smallint not null default 0, -- how often the group that it leads was red
  add column moved        smallint not null default 0, -- tries that the target or the head moved under
  add column later        smallint not null default 0, -- tries that met what time may cure
  add column refused      smallint not null default 0, -- tries that met what a person has to change
  add column offered_at   timestamptz, -- since when head_sha is refs/orch/head/KEY of the repository
  add column refreshed_at timestamptz; -- since when checkouts of the target show the landing

update merge_attempts set tip_sha = land_sha, tip_tree = land_tree where step in ('landing', 'landed');
update merge_attempts set later = least(tries, 19) where finished_at is null;

alter table merge_attempts
  drop constraint merge_attempts_intent_is_whole,
  add constraint merge_attempts_intent_is_whole check (step not in ('landing', 'landed') or (base_old is not null and head_sha is not null
    and land_sha is not null and land_tree is not null and tip_sha is not null and tip_tree is not null));

create index merge_attempts_group on merge_attempts (group_id) where finished_at is null and group_id is not null;
