-- Attempts that another system runs: which one, on which machine, and with which of its cards.
alter table attempts add column backend text not null default '';
alter table attempts add column node text not null default '';
alter table attempts add column node_gpus text not null default '';
