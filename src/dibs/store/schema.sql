-- The store as it is today, written to be read. The migrations lead here; a test shows that they agree.

-- A captured environment, kept once however many jobs share it.
create table environments (
  key     text primary key,  -- hash of the content
  content text not null      -- a JSON object
) without rowid;

-- What somebody asked for, and where it stands.
create table jobs (
  id          integer primary key autoincrement,  -- never used again
  content_key text    not null,                   -- the same text is the same work
  occurrence  integer not null,                   -- the k-th job with that text
  request     text    not null,                   -- a JSON object (codec.py)
  class       text    not null,                   -- the wishes: what fits one of a class fits all
  environment text    not null references environments (key),
  priority    integer not null,
  state       text    not null,
  attempts    integer not null default 0,
  tries       integer not null default 0,         -- counted against the request's retries
  not_before  real,                               -- a retry waits for this moment
  queued_at   real    not null,
  ended_at    real,
  exit_code   integer,                            -- of the last attempt, as are the next four
  signal      integer,
  cause       text,
  message     text    not null default '',
  seconds     real,
  unique (content_key, occurrence)
);

create index jobs_waiting on jobs (class, priority desc, id) where state = 'queued';
create index jobs_running on jobs (id) where state = 'running';
create index jobs_unsuccessful on jobs (state, id) where state in ('failed', 'cancelled', 'timed_out', 'lost', 'held');

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
  primary key (job, number)
) without rowid;
