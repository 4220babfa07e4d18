-- The store. Until the first release this is its one schema: a change to it raises SCHEMA_VERSION in file.py.

-- A captured environment, kept once however many jobs share it.
create table environments (
  key     text primary key,  -- hash of the content
  content text not null      -- a JSON object
) without rowid;

-- What was known about the code when jobs were added, kept once.
create table code (
  key     text primary key,  -- hash of the content
  content text not null      -- a JSON object: commit, diff of the dirty tree
) without rowid;

-- What was asked for, and its state.
create table jobs (
  id          integer primary key autoincrement,  -- never used again
  content_key text,                               -- in a run's list the same text is the same work
  occurrence  integer,                            -- the k-th job with that text
  once        text,                               -- in a queue there is one job with this key
  request     text    not null,                   -- a JSON object (codec.py)
  class       text    not null,                   -- what fits one of a class fits all
  environment text    not null references environments (key),
  code        text    not null default '',
  name        text    not null default '',
  project     text    not null default '',
  batch       integer,                            -- the first of the jobs that one call added
  array_id    integer,                            -- the first job of its array
  task        integer,
  priority    integer not null,                   -- `Request.precedence`: urgent jobs above all others
  rank        real,                               -- its place there; null: its number
  state       text    not null,
  blockers    integer not null default 0,         -- jobs that must end first
  why_held    text    not null default '',
  is_stopping integer not null default 0,         -- its end was asked for: it is not tried again
  stopped_by  integer,                            -- the job whose end cancelled it
  attempts    integer not null default 0,
  tries       integer not null default 0,         -- counted against the request's retries
  not_before  real,                               -- a retry waits for this moment
  queued_at   real    not null,
  started_at  real,                               -- of the last attempt, as are the next seven
  ended_at    real,
  exit_code   integer,
  signal      integer,
  cause       text,
  message     text    not null default '',
  seconds     real
);

create index jobs_waiting on jobs (class, priority desc, coalesce(rank, id)) where state = 'queued' and blockers = 0;
create index jobs_turn on jobs (priority desc, coalesce(rank, id)) where state = 'queued';
create index jobs_delayed on jobs (not_before) where state = 'queued' and not_before is not null;
create index jobs_state on jobs (state, id);
create index jobs_named on jobs (name, id) where name <> '';
create index jobs_of_project on jobs (project, id) where project <> '';
create index jobs_ended on jobs (state, ended_at) where ended_at is not null;
create index jobs_of_array on jobs (array_id, task) where array_id is not null;
create index jobs_stopped on jobs (stopped_by) where stopped_by is not null;
create unique index jobs_listed on jobs (content_key, occurrence) where content_key is not null;
create unique index jobs_once on jobs (once) where once is not null;

-- The last number that a job has reported under each name, once an attempt has ended. Trials keep their own.
create table reported (
  job     integer primary key,
  attempt integer not null,
  numbers text    not null  -- a JSON object; null stands for what is not finite
);

-- How many jobs there are, so that a million need not be counted. The triggers keep it up to date.
create table tally (
  project text    not null,
  state   text    not null,
  jobs    integer not null,
  primary key (project, state)
) without rowid;

create trigger job_added after insert on jobs begin
  insert into tally values (new.project, new.state, 1) on conflict do update set jobs = jobs + 1;
end;

create trigger job_changed after update of state, project on jobs when old.state <> new.state or old.project <> new.project begin
  update tally set jobs = jobs - 1 where project = old.project and state = old.state;
  insert into tally values (new.project, new.state, 1) on conflict do update set jobs = jobs + 1;
end;

create trigger job_removed after delete on jobs begin
  update tally set jobs = jobs - 1 where project = old.project and state = old.state;
end;

-- A job that another one must wait for; gone once it has ended.
create table dependencies (
  needs integer not null,  -- the job that must end first
  job   integer not null,  -- the one that waits
  kind  text    not null,  -- ok, any or fail
  primary key (needs, job)
) without rowid;

create index dependencies_of_job on dependencies (job);

-- One call of `add`: a client that lost the answer repeats it with the same key and gets the same numbers.
create table submissions (
  key   text primary key,
  first integer not null,
  last  integer not null,
  at    real    not null
) without rowid;

-- A list that one call of `add` sends in several requests, until its parts are jobs. The numbers are reserved.
create table lists (
  first       integer primary key,
  last        integer not null,
  key         text    not null unique,      -- of the call
  arrived     integer not null default 0,   -- jobs
  environment text    not null default '',  -- with the last part
  code        text    not null default '',
  is_complete integer not null default 0,   -- it is acknowledged: its parts become jobs, one after another
  at          real    not null              -- when its last part arrived
);

-- Jobs of such a list that arrived together.
create table parts (
  first    integer primary key,  -- the number of the first
  list     integer not null,
  requests text    not null      -- a JSON list of requests as text
);

create index parts_of_list on parts (list);

-- A pause, a drain or a quarantine. A subject is `queue`, `project NAME` or `gpu KEY`.
create table marks (
  subject text primary key,
  kind    text not null,  -- paused, drained or quarantined
  why     text not null,
  since   real not null
) without rowid;

-- What was set while it ran, such as the pool of GPUs.
create table settings (
  name  text primary key,
  value text not null
) without rowid;

-- One run of a job. Open while ended_at is null.
create table attempts (
  job       integer not null references jobs (id),
  number    integer not null,
  boot_id   text    not null,  -- of the machine's run in which it was started
  folder    text    not null,
  claims    text    not null,  -- its hold on GPUs: a JSON list
  opened_at real    not null,
  ended_at  real,
  exit_code integer,
  signal    integer,
  cause     text,
  message   text    not null default '',
  seconds   real,
  usage     text    not null default '',  -- what was measured: a JSON object (codec.py)
  backend   text    not null default '',  -- the other system that runs it
  node      text    not null default '',  -- its machine there
  node_gpus text    not null default '',  -- its cards there
  primary key (job, number)
) without rowid;

-- A time in which an attempt stands still. The job is `suspended` from `suspended_at` to `ended_at`.
create table suspensions (
  job          integer not null,
  attempt      integer not null,
  number       integer not null,  -- the first of an attempt is 1
  phase        text    not null,  -- suspending, suspended, resuming or over
  why          text    not null,
  resumes      integer not null,  -- by itself, as soon as there is room
  began_at     real    not null,
  suspended_at real,              -- null: not yet, or it could not be suspended
  resuming_at  real,
  ended_at     real,
  rung         text,              -- cuda, checkpoint or stop
  held         text    not null,  -- bytes of its cards' memory: a JSON object, by card
  frees_cards  integer not null,
  why_not      text    not null,
  primary key (job, attempt, number)
) without rowid;

create index suspensions_moved on suspensions (began_at) where rung = 'cuda';

-- What jobs of one shape (its script and the names of its arguments) were seen to need on cards of one model.
create table lessons (
  shape      text    not null,
  gpu        text    not null,      -- the card's name
  peak_vram  integer not null,      -- bytes; 0: not measured yet
  peak_mem   integer not null,      -- bytes of the machine's memory
  cpus       real    not null,
  runs       integer not null,
  needs_card integer not null,      -- it ran out of memory beside others
  obstacle   text,                  -- why the driver could not suspend one
  at         real    not null,
  primary key (shape, gpu)
) without rowid;

-- A search over parameters. Its trials are jobs, each made when there is room for it.
create table sweeps (
  id          integer primary key autoincrement,
  key         text    not null unique,            -- of the call that added it
  name        text    not null,
  spec        text    not null,                   -- a JSON object (sweeps/spec.py)
  request     text    not null,                   -- what its jobs ask for beside the command (codec.py)
  environment text    not null,
  code        text    not null,
  state       text    not null,
  why         text    not null default '',
  cursor      integer not null default 0,         -- of a grid or a random search: the next point to look at
  counts_from real    not null default 0,         -- trials that ended before are not counted as the first
  queued_at   real    not null,
  ended_at    real
);

create index sweeps_named on sweeps (name, id) where name <> '';

-- One point of a sweep, and what came of it.
create table trials (
  sweep       integer not null references sweeps (id),
  number      integer not null,
  point       text    not null,                   -- a JSON object
  command     text    not null,                   -- as it is shown
  fingerprint text    not null,                   -- the same for the same work, also in another sweep
  state       text    not null,
  job         integer,                            -- which may have been cleaned away
  found       text,                               -- its values: a JSON list in the order of the metrics
  score       real,                               -- the first of them, so that less is better; of one with values
  why         text    not null default '',
  cause       text    not null default '',        -- the kind of failure
  seconds     real,
  reused_from integer,                            -- the job that ran the same point before
  ended_at    real,
  study       integer,                            -- its number in the adviser's study
  pruned_by   text    not null default '',        -- the sentence with which its end was asked for
  is_due      integer not null default 0,         -- it failed, and is tried again when there is room
  reported    text    not null default '{}',      -- the last of every number that it reported: a JSON object
  continues   integer,                            -- the trial whose checkpoint it takes over
  repeat_of   integer,                            -- the first trial of the same point, where points are repeated
  means       text,                               -- of that first one: the mean of each metric over the repeats
  spreads     text,                               -- and the standard deviation
  primary key (sweep, number)
) without rowid;

create index trials_in_state on trials (sweep, state, number);
create index trials_due on trials (sweep, number) where is_due;
create index trials_of_job on trials (job) where job is not null;
create index trials_done on trials (fingerprint) where state = 'complete';
create index trials_by_score on trials (sweep, score, number) where score is not null;
create index trials_ended on trials (sweep, ended_at, number) where ended_at is not null;

-- How many trials there are, kept true by the triggers.
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

-- What happened, so that a reader that reconnects misses nothing.
create table events (
  id   integer primary key autoincrement,
  at   real    not null,
  kind text    not null,  -- job.ended, gpu.drained, ...
  job  integer,
  body text    not null   -- a JSON object
);

-- What a card of the pool was and used in a stretch of time. A ring for each card and length: the slots are used again.
create table card_history (
  gpu         text    not null,  -- the card's key
  step        integer not null,  -- seconds of the stretch
  slot        integer not null,
  at          integer not null,  -- its begin
  job         real    not null,  -- seconds of the card that jobs held; this and the next four
  unused      real    not null,  -- held by jobs without load
  others      real    not null,
  idle        real    not null,
  lost        real    not null,
  load_mean   real,              -- percent; null here and below: not known
  load_most   real,
  memory_mean real,              -- bytes
  memory_most real,
  power_mean  real,              -- watts
  power_most  real,
  primary key (gpu, step, slot)
) without rowid;

-- A time in which a card was watched.
create table card_uses (
  gpu   text not null,
  since real not null,
  until real not null,
  use   text not null,  -- others or lost; empty where it was free or held by jobs of this queue
  primary key (gpu, since)
) without rowid;

-- GPU time that a user had of the pool outside of this queue, in one hour.
create table outside_use (
  at      integer not null,  -- the hour's begin
  user    text    not null,
  seconds real    not null,
  joules  real    not null,
  primary key (at, user)
) without rowid;

-- GPU time of attempts whose jobs were cleaned away, so that the reports of past weeks stay as they were.
create table cleaned_use (
  week             text    not null,  -- 2026-W46
  project          text    not null,
  seconds          real    not null,
  remote_seconds   real    not null,
  watt_hours       real    not null,
  load_seconds     real    not null,
  measured_seconds real    not null,
  attempts         integer not null,
  primary key (week, project)
) without rowid;
