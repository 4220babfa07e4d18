-- The queue: numbers that people live with, order, dependencies, arrays, marks and events.

create table code (
  key     text primary key,
  content text not null
) without rowid;
create table new_jobs (
  id          integer primary key autoincrement,
  content_key text,
  occurrence  integer,
  once        text,
  request     text    not null,
  class       text    not null,
  environment text    not null references environments (key),
  code        text    not null default '',
  name        text    not null default '',
  project     text    not null default '',
  batch       integer,
  array_id    integer,
  task        integer,
  priority    integer not null,
  rank        real,
  state       text    not null,
  blockers    integer not null default 0,
  why_held    text    not null default '',
  is_stopping integer not null default 0,
  stopped_by  integer,
  attempts    integer not null default 0,
  tries       integer not null default 0,
  not_before  real,
  queued_at   real    not null,
  started_at  real,
  ended_at    real,
  exit_code   integer,
  signal      integer,
  cause       text,
  message     text    not null default '',
  seconds     real
);
insert into new_jobs (id, content_key, occurrence, request, class, environment, name, priority, state, attempts, tries,
  not_before, queued_at, ended_at, exit_code, signal, cause, message, seconds)
select id, content_key, occurrence, request, class, environment, case when instr(request, '\ud') then '' else coalesce(json_extract(request, '$.name'), '') end, priority, state,
  attempts, tries, not_before, queued_at, ended_at, exit_code, signal, cause, message, seconds from jobs;
update new_jobs set started_at = (select opened_at from attempts where job = id and number = new_jobs.attempts);
-- Whatever number was given is never given again, also if its job is gone.
delete from sqlite_sequence where name = 'new_jobs';
insert into sqlite_sequence select 'new_jobs', seq from sqlite_sequence where name = 'jobs';
drop table jobs;
alter table new_jobs rename to jobs;
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
create table tally (
  project text    not null,
  state   text    not null,
  jobs    integer not null,
  primary key (project, state)
) without rowid;
insert into tally select project, state, count(*) from jobs group by project, state;
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
create table dependencies (
  needs integer not null,
  job   integer not null,
  kind  text    not null,
  primary key (needs, job)
) without rowid;
create index dependencies_of_job on dependencies (job);
create table submissions (
  key   text primary key,
  first integer not null,
  last  integer not null,
  at    real    not null
) without rowid;
create table marks (
  subject text primary key,
  kind    text not null,
  why     text not null,
  since   real not null
) without rowid;
create table settings (
  name  text primary key,
  value text not null
) without rowid;
create table events (
  id   integer primary key autoincrement,
  at   real    not null,
  kind text    not null,
  job  integer,
  body text    not null
);
