-- What attempts used, and what was learned from it.

alter table attempts add column usage text not null default '';
create table lessons (
  shape      text    not null,
  gpu        text    not null,
  peak_vram  integer not null,
  peak_mem   integer not null,
  cpus       real    not null,
  runs       integer not null,
  needs_card integer not null,
  at         real    not null,
  primary key (shape, gpu)
) without rowid;
