-- What a watched table's triggers do: the row of the application becomes a document in the same transaction, and goes
-- with it. Which column is what stands in ragdb.watched_table as a position in the update trigger's list of columns:
-- PostgreSQL keeps that list right when a column or the table is renamed, and in a restored dump.

-- A watched row over `r` as SQL: `given` is what ragdb.follow_row() takes, `matches` and `content` are parts of it; name and
-- type of the id's column. Read from the catalogue for every row, so that a rename needs nobody.
-- format('%s') calls the type's output function and nothing else: a cast to text or json of somebody's own type would run
-- that person's code with the rights of ragdb's owner.
create or replace function ragdb.watched_row(
  w ragdb.watched_table, relation oid, r text, out given text, out matches text, out content text, out id text, out id_column text, out id_type text)
language plpgsql stable
set search_path from current
as $function$
declare
  texts text[];
  jsons text[];
begin
  select array_agg(case when x.ours then pg_catalog.format('(%s)::pg_catalog.text', x.value)
                        else pg_catalog.format('case when %1$s is not null then pg_catalog.format(''%%s'', %1$s) end', x.value) end order by x.n),
         array_agg(case when x.ours then pg_catalog.format('pg_catalog.to_jsonb(%s)', x.value)
                        else pg_catalog.format('case when %1$s is not null then pg_catalog.to_jsonb(pg_catalog.format(''%%s'', %1$s)) end', x.value) end order by x.n),
         min(x.attname::text) filter (where x.n = 1), min(format_type(x.atttypid, null)) filter (where x.n = 1)
    into texts, jsons, id_column, id_type
    from (select u.n, a.attname, a.atttypid, pg_catalog.format('%s.%I', r, a.attname) as value,
                 coalesce(b.typnamespace, y.typnamespace) = 'pg_catalog'::regnamespace as ours
            from pg_trigger g
           cross join unnest(g.tgattr::smallint[]) with ordinality u(attnum, n)
            join pg_attribute a on a.attrelid = g.tgrelid and a.attnum = u.attnum
            join pg_type y on y.oid = a.atttypid
            left join pg_type b on y.typtype = 'd' and b.oid = y.typbasetype
           where g.tgrelid = relation and g.tgname = pg_catalog.format('ragdb_watch_%s_update', w.watch_id)) x;
  if texts is null then
    raise exception 'the triggers of watch % on table % are not all there', w.watch_id, relation::regclass
      using errcode = 'RD007', hint = pg_catalog.format('Watch the table again with ragdb.watch_table(), or end it: select ragdb.unwatch(%s).', w.watch_id);
  end if;
  id := texts[(w.fields ->> 'id')::integer];
  content := texts[(w.fields ->> 'content')::integer];
  matches := coalesce((
    select string_agg(pg_catalog.format('%L::pg_catalog.jsonb operator(pg_catalog.@>) pg_catalog.jsonb_build_array(coalesce(%s, ''null''::pg_catalog.jsonb))',
                             x -> 'values', jsons[(x ->> 'column')::integer]), ' and ' order by n)
      from jsonb_array_elements(w.fields -> 'where') with ordinality as e(x, n)), 'true');
  given := (
    select pg_catalog.format('pg_catalog.jsonb_build_object(%s, ''matches'', %s)',
                    string_agg(case f.key when 'metadata' then pg_catalog.format('%L, pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(%s))', f.key, (
                                            select string_agg(pg_catalog.format('%L, %s', m.key, jsons[m.value::integer]), ', ' order by m.key) from jsonb_each_text(f.value) m))
                               when 'status' then pg_catalog.format('%L, %s', f.key, texts[(f.value ->> 'column')::integer])
                               else pg_catalog.format('%L, %s', f.key, texts[(f.value #>> '{}')::integer]) end, ', ' order by f.key), matches)
      from jsonb_each(w.fields) f where f.key <> 'where');
end
$function$;
comment on function ragdb.watched_row(ragdb.watched_table, oid, text) is
  'A row of a watched table as SQL: what ragdb.follow_row() takes, and parts of it; calls no function but those of the types.';

-- Makes the documents of a watch follow one row: `old_id` its id before (null: a new row), `given` what it is now (null: it
-- is gone). Returns put, unchanged, deleted, or none (there was no document, and there is to be none).
create or replace function ragdb.follow_row(watch_id bigint, old_id text, given jsonb) returns text
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  w ragdb.watched_table;
  c text;
  new_id text := given ->> 'id';
  is_document boolean;
  document_status text;
  put record;
  gone integer := 0;
begin
  select x.* into w from ragdb.watched_table x where x.watch_id = follow_row.watch_id;
  select x.name into c from ragdb.collection x where x.collection_id = w.collection_id;
  is_document := coalesce(given ->> 'content', '') <> '' and ((given ->> 'matches')::boolean or w.otherwise <> 'delete');
  if old_id is not null and old_id is distinct from new_id then
    gone := (ragdb.delete_document(c, w.uri_prefix || old_id) ->> 'document')::integer;
  end if;
  if not coalesce(is_document, false) then
    if given is not null then
      gone := gone + (ragdb.delete_document(c, w.uri_prefix || new_id) ->> 'document')::integer;
    end if;
    return case when gone > 0 then 'deleted' else 'none' end;
  end if;

  -- a word that says nothing to ragdb is no reason to show the text
  document_status := case
    when not (given ->> 'matches')::boolean then w.otherwise
    when w.fields ? 'status' then coalesce(w.fields #>> array['status', 'words', given ->> 'status'],
                                           case when given ->> 'status' in ('active', 'draft', 'archived') then given ->> 'status' end, 'draft')
    when w.otherwise <> 'delete' then 'active' end;
  select p.* into put
    from ragdb.put_document(c, given - array['id', 'matches'] || pg_catalog.jsonb_build_object(
           'uri', w.uri_prefix || new_id, 'status', document_status, 'media_type', w.media_type)
           -- a title that is gone must not stay
           || case when w.fields ? 'title' then pg_catalog.jsonb_build_object('title', coalesce(given ->> 'title', '')) else '{}' end) p;
  -- so must nothing else: to ragdb.put_document() null means as it was
  if (given ->> 'language' is null and w.fields ? 'language') or (given ->> 'owner' is null and w.fields ? 'owner')
     or (given ->> 'version' is null and w.fields ? 'version') or (given ->> 'updated_at' is null and w.fields ? 'updated_at')
     or (given ->> 'review_after' is null and w.fields ? 'review_after') then
    update ragdb.document d
       set language = case when w.fields ? 'language' and given ->> 'language' is null then null else d.language end,
           owner = case when w.fields ? 'owner' and given ->> 'owner' is null then null else d.owner end,
           version = case when w.fields ? 'version' and given ->> 'version' is null then null else d.version end,
           updated_at = case when w.fields ? 'updated_at' and given ->> 'updated_at' is null then null else d.updated_at end,
           review_after = case when w.fields ? 'review_after' and given ->> 'review_after' is null then null else d.review_after end
     where d.document_id = put.document_id
       and ((w.fields ? 'language' and given ->> 'language' is null and d.language is not null)
            or (w.fields ? 'owner' and given ->> 'owner' is null and d.owner is not null)
            or (w.fields ? 'version' and given ->> 'version' is null and d.version is not null)
            or (w.fields ? 'updated_at' and given ->> 'updated_at' is null and d.updated_at is not null)
            or (w.fields ? 'review_after' and given ->> 'review_after' is null and d.review_after is not null));
  end if;
  return case when put.changed or put.updated or gone > 0 then 'put' else 'unchanged' end;
end
$function$;
comment on function ragdb.follow_row(bigint, text, jsonb) is 'Makes the documents of a watch follow one row of its table.';

-- Deletes the documents of a watch; returns how many.
create or replace function ragdb.delete_watched(watch_id bigint) returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  d record;
  n integer := 0;
begin
  -- by uri: two that delete the same take them in one order
  for d in select c.name, x.uri
             from ragdb.watched_table w join ragdb.collection c using (collection_id) join ragdb.document x using (collection_id)
            where w.watch_id = delete_watched.watch_id and starts_with(x.uri, w.uri_prefix)
            order by x.uri loop
    n := n + (ragdb.delete_document(d.name, d.uri) ->> 'document')::integer;
  end loop;
  return n;
end
$function$;
comment on function ragdb.delete_watched(bigint) is 'Deletes the documents of a watch; returns how many.';

-- SECURITY DEFINER: who writes the application's table needs no right here. What reaches ragdb is the values of the watched
-- columns, never as SQL. The settings make texts of times and numbers the same in every session.
create or replace function ragdb.watch_row() returns trigger
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'iso_8601'
set extra_float_digits = 1
set bytea_output = 'hex'
as $function$
declare
  w ragdb.watched_table;
  reason text;
begin
  select x.* into w from ragdb.watched_table x where x.key = tg_argv[0]::uuid;
  if not found then
    raise exception 'table %.% has the trigger %, which belongs to no watch of this database', tg_table_schema, tg_table_name, tg_name
      using errcode = 'RD007', hint = 'Watch the table again with ragdb.watch_table(), or drop its triggers named ragdb_watch_...';
  end if;
  if w.on_error = 'warn' then
    begin
      if tg_op = 'TRUNCATE' then
        perform ragdb.delete_watched(w.watch_id);
      else
        execute ragdb.watch_statement(w, tg_relid, tg_op) using w.watch_id, new, old;
      end if;
    exception when others then
      get stacked diagnostics reason = message_text;
      raise warning 'ragdb did not follow a row of %.%: %', tg_table_schema, tg_table_name, reason
        using hint = pg_catalog.format('Afterwards: ragdb watch %I.%I --again, or call ragdb.backfill_table() until it is done.', tg_table_schema, tg_table_name);
    end;
  elsif tg_op = 'TRUNCATE' then
    perform ragdb.delete_watched(w.watch_id);
  else
    execute ragdb.watch_statement(w, tg_relid, tg_op) using w.watch_id, new, old;
  end if;
  return null;
end
$function$;
comment on function ragdb.watch_row() is 'Trigger of watched tables: a document follows each row, in the transaction that changes it.';

create or replace function ragdb.watch_statement(w ragdb.watched_table, relation oid, op text) returns text
language plpgsql stable
set search_path from current
as $function$
declare
  new_row record := ragdb.watched_row(w, relation, '($2)');
begin
  return pg_catalog.format('select ragdb.follow_row($1, %s, %s)',
    -- by the output function: a writer may have made a trigger by hand, on a table with an id of a type of his own
    case when op = 'INSERT' then 'null' else pg_catalog.format('pg_catalog.format(''%%s'', ($3).%I)', new_row.id_column) end,
    case when op = 'DELETE' then 'null' else new_row.given end);
end
$function$;
comment on function ragdb.watch_statement(ragdb.watched_table, oid, text) is
  'What the trigger of a watched table runs for one row: $1 the watch, $2 the new row, $3 the old one.';
