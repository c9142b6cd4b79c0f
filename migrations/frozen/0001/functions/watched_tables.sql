-- Rows that should be documents and are none: 0 when all is well, null where the caller may not read the table, or it is gone.
create or replace function ragdb.rows_without_document(watch_id bigint) returns bigint
language plpgsql stable
set search_path from current
as $function$
declare
  w ragdb.watched_table;
  relation oid;
  r record;
  n bigint;
begin
  select x.* into w from ragdb.watched_table x where x.watch_id = rows_without_document.watch_id;
  select g.tgrelid into relation from pg_trigger g
   where g.tgname = pg_catalog.format('ragdb_watch_%s_update', w.watch_id) and g.tgparentid = 0 and encode(g.tgargs, 'escape') like w.key || '%';
  if relation is null then
    return null;
  end if;
  r := ragdb.watched_row(w, relation, 'r');
  execute pg_catalog.format('select count(*) from %1$s r where nullif(%2$s, '''') is not null and (%3$s or %4$L <> ''delete'') '
                 'and not exists (select from ragdb.document d where d.collection_id = $1 and d.uri = $2 || (r.%5$I)::text)',
                 relation::regclass, r.content, r.matches, w.otherwise, r.id_column) into n using w.collection_id, w.uri_prefix;
  return n;
exception when insufficient_privilege or sqlstate 'RD007' then
  return null;
end
$function$;
comment on function ragdb.rows_without_document(bigint) is
  'Rows of a watched table that should be documents and are none; null where it cannot be told. Reads the whole table.';

-- What is watched, and how it stands.
--   select * from ragdb.watched_tables;
-- Counts rows and documents: seconds on millions of them.
create or replace view ragdb.watched_tables as
select w.watch_id, coalesce(g.relation::text, w.named) as table_name, c.name as collection, w.uri_prefix,
       case when g.relation is null then 'triggers are gone: restored without them, or the table was dropped'
            when g.n_triggers < 4 then 'triggers are missing'
            when g.off then 'triggers are disabled'
            when w.progress is not null then 'backfill is under way'
            when w.backfilled_at is null then 'not backfilled'
            else 'watched' end as state,
       (select string_agg(a.attname, ', ' order by u.n)
          from unnest(g.columns) with ordinality u(attnum, n) join pg_attribute a on a.attrelid = g.relation and a.attnum = u.attnum) as columns,
       w.fields, w.otherwise, w.on_error,
       (select count(*) from ragdb.document d where d.collection_id = w.collection_id and starts_with(d.uri, w.uri_prefix)) as documents,
       ragdb.rows_without_document(w.watch_id) as rows_without_document,
       w.backfilled_at, w.created_at, w.created_by, w.comment
  from ragdb.watched_table w
  join ragdb.collection c using (collection_id)
  left join lateral (
    select t.tgrelid::regclass as relation, count(*) as n_triggers, bool_or(t.tgenabled = 'D') as off,
           max(t.tgattr::smallint[]) as columns
      from pg_trigger t join pg_proc p on p.oid = t.tgfoid
     where p.proname = 'watch_row' and t.tgparentid = 0 and encode(t.tgargs, 'escape') like w.key || '%'
     group by t.tgrelid) g on true
 order by w.watch_id;
comment on view ragdb.watched_tables is 'One row a watched table of the application: what follows it, and how many of its rows lack a document.';
comment on column ragdb.watched_tables.state is 'watched, not backfilled, backfill is under way, or what is wrong with its triggers';
comment on column ragdb.watched_tables.columns is 'the watched columns as they are called now, in the order that fields counts';
comment on column ragdb.watched_tables.documents is 'documents under its prefix';
comment on column ragdb.watched_tables.rows_without_document is 'rows that should be documents and are none; null where the caller may not read the table';
