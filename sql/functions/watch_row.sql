-- What a watched table's triggers do: the row of the application becomes a document in the same transaction, and goes
-- with it. Which column is what stands in ragdb.watched_table as a position in the update trigger's list of columns:
-- PostgreSQL keeps that list right when a column or the table is renamed, and in a restored dump.

-- One value of a row as SQL, text or jsonb. format('%s') calls the type's output function and nothing else: a cast to
-- text or json of somebody's own type would run that person's code with the rights of ragdb's owner.
create or replace function ragdb.watched_value(relation oid, attnum smallint, r text, as_json boolean) returns text
language plpgsql stable
set search_path from current
as $function$
declare
  a record;
  value text;
begin
  select t.attname, coalesce(b.typnamespace, y.typnamespace) = 'pg_catalog'::regnamespace as ours into a
    from pg_attribute t join pg_type y on y.oid = t.atttypid
    left join pg_type b on y.typtype = 'd' and b.oid = y.typbasetype
   where t.attrelid = relation and t.attnum = watched_value.attnum and not t.attisdropped;
  if not found then
    raise exception 'a column of table % that ragdb watches is gone', relation::regclass
      using errcode = 'RD007', hint = 'Watch the table again with ragdb.watch_table(), or end it with ragdb.unwatch_table().';
  end if;
  value := pg_catalog.format('%s.%I', r, a.attname);
  return case when a.ours and as_json then pg_catalog.format('pg_catalog.to_jsonb(%s)', value)
              when as_json then pg_catalog.format('case when %1$s is not null then pg_catalog.to_jsonb(pg_catalog.format(''%%s'', %1$s)) end', value)
              when a.ours then pg_catalog.format('(%s)::pg_catalog.text', value)
              else pg_catalog.format('case when %1$s is not null then pg_catalog.format(''%%s'', %1$s) end', value) end;
end
$function$;
comment on function ragdb.watched_value(oid, smallint, text, boolean) is
  'A column of a watched row as SQL, as text or jsonb; calls no function but those of the types.';

-- The columns in the order in which ragdb.watch_table() listed them.
create or replace function ragdb.watched_columns(relation oid, watch_id bigint) returns smallint[]
language plpgsql stable
set search_path from current
as $function$
declare
  found_columns smallint[];
begin
  select array(select c from unnest(g.tgattr::smallint[]) with ordinality u(c, n) order by n) into found_columns
    from pg_trigger g
   where g.tgrelid = relation and g.tgname = pg_catalog.format('ragdb_watch_%s_update', watched_columns.watch_id);
  if found_columns is null then
    raise exception 'the triggers of watch % on table % are not all there', watch_id, relation::regclass
      using errcode = 'RD007', hint = 'Watch the table again with ragdb.watch_table(), or end it with ragdb.unwatch().';
  end if;
  return found_columns;
end
$function$;
comment on function ragdb.watched_columns(oid, bigint) is 'Numbers of the columns of a watched table, in the order of its update trigger.';

-- Whether a row is to be a document of its own, as SQL over `r`.
create or replace function ragdb.watched_match(w ragdb.watched_table, relation oid, columns smallint[], r text) returns text
language sql stable
set search_path from current
as $function$
  select coalesce(string_agg(
           pg_catalog.format('%L::pg_catalog.jsonb operator(pg_catalog.@>) pg_catalog.jsonb_build_array(coalesce(%s, ''null''::pg_catalog.jsonb))',
                  x -> 'values', ragdb.watched_value(relation, columns[(x ->> 'column')::integer], r, true)), ' and ' order by n), 'true')
    from jsonb_array_elements(w.fields -> 'where') with ordinality as e(x, n)
$function$;
comment on function ragdb.watched_match(ragdb.watched_table, oid, smallint[], text) is 'Whether a watched row matches the where of its watch, as SQL.';

-- A row as ragdb.follow_row() takes it, as SQL over `r`.
create or replace function ragdb.watched_row(w ragdb.watched_table, relation oid, columns smallint[], r text) returns text
language sql stable
set search_path from current
as $function$
  select 'pg_catalog.jsonb_build_object(' || string_agg(part, ', ' order by part) || ')'
    from (select pg_catalog.format('%L, %s', f.key, ragdb.watched_value(relation, columns[(coalesce(f.value ->> 'column', f.value #>> '{}'))::integer], r, false)) as part
            from jsonb_each(w.fields) f where f.key not in ('metadata', 'where')
          union all
          select '''matches'', ' || ragdb.watched_match(w, relation, columns, r)
          union all
          select '''metadata'', pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('
                 || string_agg(pg_catalog.format('%L, %s', m.key, ragdb.watched_value(relation, columns[(m.value #>> '{}')::integer], r, true)), ', ' order by m.key) || '))'
            from jsonb_each(w.fields -> 'metadata') m having count(*) > 0) x
$function$;
comment on function ragdb.watched_row(ragdb.watched_table, oid, smallint[], text) is 'A watched row as jsonb, as SQL: what ragdb.follow_row() takes.';

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
  columns smallint[];
  statement text;
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
        columns := ragdb.watched_columns(tg_relid, w.watch_id);
        execute ragdb.watch_statement(w, tg_relid, columns, tg_op) using w.watch_id, new, old;
      end if;
    exception when others then
      get stacked diagnostics reason = message_text;
      raise warning 'ragdb did not follow a row of %.%: %', tg_table_schema, tg_table_name, reason
        using hint = pg_catalog.format('Afterwards: ragdb watch %I.%I --again, or call ragdb.backfill_table() until it is done.', tg_table_schema, tg_table_name);
    end;
  elsif tg_op = 'TRUNCATE' then
    perform ragdb.delete_watched(w.watch_id);
  else
    columns := ragdb.watched_columns(tg_relid, w.watch_id);
    execute ragdb.watch_statement(w, tg_relid, columns, tg_op) using w.watch_id, new, old;
  end if;
  return null;
end
$function$;
comment on function ragdb.watch_row() is 'Trigger of watched tables: a document follows each row, in the transaction that changes it.';

create or replace function ragdb.watch_statement(w ragdb.watched_table, relation oid, columns smallint[], op text) returns text
language sql stable
set search_path from current
as $function$
  select pg_catalog.format('select ragdb.follow_row($1, %s, %s)',
    case op when 'INSERT' then 'null' else ragdb.watched_value(relation, columns[(w.fields ->> 'id')::integer], '($3)', false) end,
    case op when 'DELETE' then 'null' else ragdb.watched_row(w, relation, columns, '($2)') end)
$function$;
comment on function ragdb.watch_statement(ragdb.watched_table, oid, smallint[], text) is
  'What the trigger of a watched table runs for one row: $1 the watch, $2 the new row, $3 the old one.';
