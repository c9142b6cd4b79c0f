-- The rows of a watched table that were there before its triggers, and documents whose row is gone: compared a batch at a
-- time, so that no transaction is long. Called again it goes on where it was; `done` when everything has been seen:
--   select * from ragdb.backfill_table('app.articles');      -- in psql: \watch 0.1, until done; or: ragdb watch app.articles --again
-- In order of the id, by its index. A row that another transaction holds is left for the next call: nothing waits, and the
-- rows of a batch are held (FOR SHARE: needs UPDATE on the table) so that no newer text is overwritten by what was read.
create or replace function ragdb.backfill_table("table" regclass, batch integer default 500, collection text default null)
returns table (rows integer, put integer, deleted integer, waiting integer, done boolean)
language plpgsql
set search_path from current
set enable_seqscan = off
-- rows that a policy hides would be taken for rows that are gone
set row_security = off
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'iso_8601'
set extra_float_digits = 1
set bytea_output = 'hex'
as $function$
declare
  w ragdb.watched_table := ragdb.hold_watch((ragdb.watch_of("table", collection)).watch_id);
  r record := ragdb.watched_row(w, "table", 'r');
  phase text := coalesce(w.progress ->> 'phase', 'rows');
  after text := w.progress ->> 'after';
  late text[] := array(select jsonb_array_elements_text(w.progress -> 'waiting'));
  ids text[];
  seen text[] := '{}';
  given jsonb;
  result text;
  uri text;
  gone boolean;
begin
  rows := 0; put := 0; deleted := 0; done := false;

  if phase = 'rows' then
    execute pg_catalog.format('select coalesce(array_agg(x.id::text order by x.id), ''{}'') from (select r.%1$I as id from %2$s r %3$s order by r.%1$I limit $1) x',
      r.id_column, "table", case when after is not null then pg_catalog.format('where r.%1$I > $2::%2$s', r.id_column, r.id_type) end)
      into ids using batch, after;
    after := coalesce(ids[cardinality(ids)], after);
    for given in execute pg_catalog.format('select %1$s from %2$s r where r.%3$I = any ($1::%4$s[]) order by r.%3$I for share of r skip locked',
                   r.given, "table", r.id_column, r.id_type) using late || ids loop
      result := ragdb.follow_row(w.watch_id, null, given);
      rows := rows + 1;
      put := put + (result = 'put')::integer;
      deleted := deleted + (result = 'deleted')::integer;
      seen := seen || (given ->> 'id');
    end loop;
    if cardinality(seen) < cardinality(late || ids) then
      execute pg_catalog.format('select coalesce(array_agg(r.%1$I::text), ''{}'') from %2$s r where r.%1$I = any ($1::%3$s[])', r.id_column, "table", r.id_type)
        into late using array(select x from unnest(late || ids) x except select x from unnest(seen) x);
    else
      late := '{}';
    end if;
    if cardinality(ids) < batch and late = '{}' then
      phase := 'documents';
      after := '';
    end if;
  else
    ids := array(select d.id from ragdb.watched_documents(w.watch_id, after, batch) d order by d.uri);
    after := coalesce(w.uri_prefix || ids[cardinality(ids)], after);
    done := cardinality(ids) < batch;
    for uri in execute ragdb.without_row("table", r.id_column, r.id_type) using ids loop
      -- held, then looked for again: the row may be back by now
      if ragdb.hold_document(w.watch_id, uri) then
        execute 'select exists (' || ragdb.without_row("table", r.id_column, r.id_type) || ')' into strict gone using array[uri];
        if gone then
          deleted := deleted + (ragdb.follow_row(w.watch_id, uri, null) = 'deleted')::integer;
        end if;
      end if;
    end loop;
  end if;
  waiting := cardinality(late);
  perform ragdb.keep_progress(w.watch_id, case when not done then pg_catalog.jsonb_build_object('phase', phase, 'after', after, 'waiting', to_jsonb(late)) end);
  return next;
end
$function$;
comment on function ragdb.backfill_table(regclass, integer, text) is
  'Compares the next rows of a watched table with their documents, then documents with their rows; again until `done`.';

-- Ids of $1 that no row has, as SQL. Compared as text too: 017 is no other name of 17.
create or replace function ragdb.without_row("table" regclass, name text, type text) returns text
language sql stable
set search_path from current
as $function$
  select pg_catalog.format('select x.id from unnest($1::text[]) with ordinality x(id, n) where not case when pg_input_is_valid(x.id, %3$L) then '
                '(select coalesce(bool_or(r.%1$I::text = x.id), false) from %2$s r where r.%1$I = x.id::%3$s) else false end order by x.n', name, "table", type)
$function$;
comment on function ragdb.without_row(regclass, text, text) is 'Those of the ids $1 that no row of a table has, as SQL.';

-- The document that a new watch would take for a row''s, although it is none''s; null where there is none.
create or replace function ragdb.stray_document(watch_id bigint, "table" regclass) returns text
language plpgsql
set search_path from current
as $function$
declare
  w ragdb.watched_table;
  r record;
  ids text[];
  stray text;
  after text := '';
begin
  select x.* into w from ragdb.watched_table x where x.watch_id = stray_document.watch_id;
  r := ragdb.watched_row(w, "table", 'r');
  loop
    ids := array(select d.id from ragdb.watched_documents(watch_id, after, 1000) d order by d.uri);
    exit when ids = '{}';
    execute ragdb.without_row("table", r.id_column, r.id_type) || ' limit 1' into stray using ids;
    if stray is not null then
      return w.uri_prefix || stray;
    end if;
    after := w.uri_prefix || ids[cardinality(ids)];
  end loop;
  return null;
end
$function$;
comment on function ragdb.stray_document(bigint, regclass) is 'A document under the prefix of a watch that has no row in its table.';

-- Documents of a watch by uri.
create or replace function ragdb.watched_documents(watch_id bigint, after_uri text, how_many integer)
returns table (id text, uri text)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  w ragdb.watched_table;
begin
  select x.* into w from ragdb.watched_table x where x.watch_id = watched_documents.watch_id;
  return query
  select substr(d.uri, length(w.uri_prefix) + 1), d.uri
    from ragdb.document d
   where d.collection_id = w.collection_id and d.uri > after_uri and starts_with(d.uri, w.uri_prefix)
   order by d.uri
   limit how_many;
end
$function$;
comment on function ragdb.watched_documents(bigint, text, integer) is 'Documents of a watch with their row''s id, by uri.';

-- One at a time: two that walk through the same table would do everything twice.
create or replace function ragdb.hold_watch(watch_id bigint) returns ragdb.watched_table
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  w ragdb.watched_table;
begin
  select x.* into w from ragdb.watched_table x where x.watch_id = hold_watch.watch_id for update skip locked;
  if not found then
    raise exception 'watch % is being backfilled by somebody else', watch_id using errcode = 'RD007', hint = 'Let it end, or stop that one.';
  end if;
  return w;
end
$function$;
comment on function ragdb.hold_watch(bigint) is 'Holds a watch for one batch of ragdb.backfill_table().';

create or replace function ragdb.hold_document(watch_id bigint, id text) returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
begin
  perform from ragdb.watched_table w join ragdb.document d using (collection_id)
    where w.watch_id = hold_document.watch_id and d.uri = w.uri_prefix || id for update of d skip locked;
  return found;
end
$function$;
comment on function ragdb.hold_document(bigint, text) is 'Holds the document of a row, unless another transaction does.';

create or replace function ragdb.keep_progress(watch_id bigint, progress jsonb) returns void
language sql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  update ragdb.watched_table w
     set progress = keep_progress.progress, backfilled_at = case when keep_progress.progress is null then clock_timestamp() else w.backfilled_at end
   where w.watch_id = keep_progress.watch_id
$function$;
comment on function ragdb.keep_progress(bigint, jsonb) is 'Keeps where ragdb.backfill_table() goes on; null: it is through.';
