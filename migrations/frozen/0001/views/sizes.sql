-- What takes the space: every table of ragdb with its rows (as last analyzed, else as counted by the statistics), its text
-- out of line (TOAST), its indexes.
--   select "table", rows, pg_size_pretty(total_bytes) from ragdb.sizes;
create or replace view ragdb.sizes as
select c.relname::text as "table", case when c.reltuples >= 0 then c.reltuples::bigint else coalesce(s.n_live_tup, 0) end as rows,
       pg_relation_size(c.oid) as table_bytes,
       coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) as toast_bytes,
       pg_indexes_size(c.oid) as index_bytes,
       pg_total_relation_size(c.oid) as total_bytes,
       coalesce(s.n_dead_tup, 0) as dead_rows, greatest(s.last_vacuum, s.last_autovacuum) as last_vacuum
  from pg_class c
  left join pg_stat_user_tables s on s.relid = c.oid
 where c.relnamespace = 'ragdb'::regnamespace and c.relkind = 'r'
 order by pg_total_relation_size(c.oid) desc, c.relname;
comment on view ragdb.sizes is 'Every table of ragdb with its rows and bytes: the table itself, TOAST, indexes, dead rows.';
comment on column ragdb.sizes.rows is 'as last analyzed, else as counted by the statistics';
comment on column ragdb.sizes.toast_bytes is 'text and vectors that are stored out of line';
