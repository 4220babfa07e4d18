-- Searches over parameters, and their trials.

create table sweeps (
  id          integer primary key autoincrement,
  key         text    not null unique,
  name        text    not null,
  spec        text    not null,
  request     text    not null,
  environment text    not null,
  code        text    not null,
  state       text    not null,
  why         text    not null default '',
  cursor      integer not null default 0,
  counts_from real    not null default 0,
  queued_at   real    not null,
  ended_at    real
);
create index sweeps_named on sweeps (name, id) where name <> '';
create table trials (
  sweep       integer not null references sweeps (id),
  number      integer not null,
  point       text    not null,
  command     text    not null,
  fingerprint text    not null,
  state       text    not null,
  job         integer,
  found       text,
  score       real,
  why         text    not null default '',
  cause       text    not null default '',
  seconds     real,
  reused_from integer,
  ended_at    real,
  study       integer,
  pruned_by   text    not null default '',
  is_due      integer not null default 0,
  primary key (sweep, number)
) without rowid;
create index trials_in_state on trials (sweep, state, number);
create index trials_due on trials (sweep, number) where is_due;
create index trials_of_job on trials (job) where job is not null;
create index trials_done on trials (fingerprint) where state = 'complete';
create index trials_by_score on trials (sweep, score, number) where score is not null;
create index trials_ended on trials (sweep, ended_at, number) where ended_at is not null;
create table trial_tally (
  sweep  integer not null,
  state  text    not null,
  trials integer not null,
  primary key (sweep, state)
) without rowid;
create trigger trial_added after insert on trials begin
  insert into trial_tally values (new.sweep, new.state, 1) on conflict do update set trials = trials + 1;
end;
create trigger trial_changed after update of state on trials when old.state <> new.state begin
  update trial_tally set trials = trials - 1 where sweep = old.sweep and state = old.state;
  insert into trial_tally values (new.sweep, new.state, 1) on conflict do update set trials = trials + 1;
end;
