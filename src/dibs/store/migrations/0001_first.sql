create table environments (
  key     text primary key,
  content text not null
) without rowid;

create table jobs (
  id          integer primary key autoincrement,
  content_key text    not null,
  occurrence  integer not null,
  request     text    not null,
  class       text    not null,
  environment text    not null references environments (key),
  priority    integer not null,
  state       text    not null,
  attempts    integer not null default 0,
  tries       integer not null default 0,
  not_before  real,
  queued_at   real    not null,
  ended_at    real,
  exit_code   integer,
  signal      integer,
  cause       text,
  message     text    not null default '',
  seconds     real,
  unique (content_key, occurrence)
);

create index jobs_waiting on jobs (class, priority desc, id) where state = 'queued';
create index jobs_running on jobs (id) where state = 'running';
create index jobs_unsuccessful on jobs (state, id) where state in ('failed', 'cancelled', 'timed_out', 'lost', 'held');

create table attempts (
  job       integer not null references jobs (id),
  number    integer not null,
  boot_id   text    not null,
  folder    text    not null,
  claims    text    not null,
  opened_at real    not null,
  ended_at  real,
  exit_code integer,
  signal    integer,
  cause     text,
  message   text    not null default '',
  seconds   real,
  primary key (job, number)
) without rowid;
