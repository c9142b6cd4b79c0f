-- Makes the rows of a table of the application documents, by triggers on that table: they follow each insert, update of the
-- named columns, delete and truncate, in the application's own transaction.
--   select * from ragdb.watch_table('app.articles', id => 'id', content => 'body', title => 'title',
--                                   metadata => '{"tenant": "tenant_id"}', collection => 'help',
--                                   options => '{"where": {"published": true}}');
--   select * from ragdb.backfill_table('app.articles');     -- the rows that are there already: until it says done
-- Not SECURITY DEFINER: the triggers are made with the rights of the caller, who needs TRIGGER and SELECT on the table and
-- the rights of a writer of ragdb. Names of columns go through format('%I'), values stay values.

create or replace function ragdb.refuse_watch(message text, hint text) returns void
language plpgsql immutable
set search_path from current
as $function$
begin
  raise exception '%', message using errcode = 'RD004', hint = refuse_watch.hint;
end
$function$;
comment on function ragdb.refuse_watch(text, text) is 'An error about the arguments of ragdb.watch_table().';

-- A column that may be watched; an error that names the column and what it is for where it may not.
create or replace function ragdb.watchable_column("table" regclass, name text, field text) returns smallint
language plpgsql stable
set search_path from current
as $function$
declare
  a pg_attribute;
begin
  select x.* into a from pg_attribute x where x.attrelid = "table" and x.attname = watchable_column.name and x.attnum > 0 and not x.attisdropped;
  if not found then
    perform ragdb.refuse_watch(pg_catalog.format('table %s has no column "%s" (for %s)', "table", name, field),
      'Its columns: ' || (select string_agg(x.attname, ', ' order by x.attnum) from pg_attribute x where x.attrelid = "table" and x.attnum > 0 and not x.attisdropped));
  elsif a.attgenerated = 'v' then
    perform ragdb.refuse_watch(pg_catalog.format('column "%s" of %s is computed when it is read, and triggers do not see it', name, "table"),
      'Make it a stored generated column, or name the columns that it is made of.');
  elsif a.atttypid = 'bytea'::regtype and field <> 'metadata' then
    perform ragdb.refuse_watch(pg_catalog.format('column "%s" of %s is bytea, no text', name, "table"), 'Store the text in a column of its own.');
  elsif not has_column_privilege("table", a.attnum, 'select') then
    perform ragdb.refuse_watch(pg_catalog.format('%s may not read column "%s" of %s', current_user, name, "table"), 'Who watches a table must be able to read it.');
  end if;
  return a.attnum;
end
$function$;
comment on function ragdb.watchable_column(regclass, text, text) is 'Number of a column that may be watched; an error that says why where it may not.';

-- Columns by position and what they are for, from the arguments of ragdb.watch_table(): {"fields": {...}, "columns": [...]}.
create or replace function ragdb.watch_fields("table" regclass, id text, content text, title text, metadata jsonb, options jsonb) returns jsonb
language plpgsql stable
set search_path from current
as $function$
declare
  names text[] := '{}';
  fields jsonb := '{}';
  given record;
  words jsonb;
  accepted jsonb;
begin
  for given in
    select 0 as sort, 'id' as field, to_jsonb(id) as value, 'id' as key
    union all select 1, 'content', to_jsonb(content), 'content'
    union all select 2, 'title', to_jsonb(title), 'title' where title is not null
    union all select 3, o.key, o.value, o.key from jsonb_each(options) o
               where o.key in ('status', 'language', 'owner', 'version', 'updated_at', 'review_after') and o.value <> 'null'
    union all select 4, 'metadata', m.value, m.key from jsonb_each(metadata) m
    union all select 5, 'where', w.value, w.key from jsonb_each(options -> 'where') w
    order by sort, field, key loop
    if given.field = 'where' then
      accepted := case when jsonb_typeof(given.value) = 'array' then given.value else pg_catalog.jsonb_build_array(given.value) end;
      if exists (select from jsonb_array_elements(accepted) e(x) where jsonb_typeof(x) in ('object', 'array')) then
        perform ragdb.refuse_watch(pg_catalog.format('where of column "%s" is %s', given.key, given.value), 'Write a value or a list of values: {"published": true}.');
      end if;
      given.value := to_jsonb(given.key);
    elsif given.field = 'status' and jsonb_typeof(given.value) = 'object' then
      words := coalesce(given.value -> 'words', '{}');
      if given.value - array['column', 'words'] <> '{}' or jsonb_typeof(words) <> 'object'
         or exists (select from jsonb_each_text(words) e(k, v) where v is null or v not in ('active', 'draft', 'archived')) then
        perform ragdb.refuse_watch(pg_catalog.format('status is %s', given.value),
          'Write it like {"column": "state", "words": {"published": "active", "hidden": "draft"}}.');
      end if;
      given.value := given.value -> 'column';
    end if;
    if jsonb_typeof(given.value) is distinct from 'string' then
      perform ragdb.refuse_watch(pg_catalog.format('%s %s is %s, no name of a column', given.field, nullif(given.key, given.field), coalesce(given.value::text, 'null')),
        'Write names of columns: id => ''id'', content => ''body'', metadata => ''{"tenant": "tenant_id"}''.');
    end if;
    perform ragdb.watchable_column("table", given.value #>> '{}', given.field);
    if array_position(names, given.value #>> '{}') is null then
      names := names || (given.value #>> '{}');
    end if;
    fields := case given.field
      when 'metadata' then jsonb_set(pg_catalog.jsonb_build_object('metadata', '{}'::jsonb) || fields, array['metadata', given.key], to_jsonb(array_position(names, given.value #>> '{}')))
      when 'where' then fields || pg_catalog.jsonb_build_object('where', coalesce(fields -> 'where', '[]') || pg_catalog.jsonb_build_array(
             pg_catalog.jsonb_build_object('column', array_position(names, given.key), 'values', accepted)))
      when 'status' then fields || pg_catalog.jsonb_build_object('status', pg_catalog.jsonb_build_object('column', array_position(names, given.value #>> '{}'), 'words', coalesce(words, '{}')))
      else fields || pg_catalog.jsonb_build_object(given.field, array_position(names, given.value #>> '{}')) end;
  end loop;
  return pg_catalog.jsonb_build_object('fields', fields, 'columns', to_jsonb(names));
end
$function$;
comment on function ragdb.watch_fields(regclass, text, text, text, jsonb, jsonb) is
  'What each column of a watched table is for, by position, and the columns; errors where the arguments do not fit the table.';

-- What the table itself must be like: rows that triggers see, and an id that tells them apart and reads the same always.
create or replace function ragdb.check_watchable("table" regclass, id text, options jsonb) returns void
language plpgsql stable
set search_path from current
as $function$
declare
  c pg_class;
  a pg_attribute;
begin
  select x.* into strict c from pg_class x where x.oid = "table";
  if c.relkind not in ('r', 'p') or c.relpersistence = 't' or c.relnamespace in ('ragdb'::regnamespace, 'pg_catalog'::regnamespace) then
    perform ragdb.refuse_watch(pg_catalog.format('%s cannot be watched: it is no ordinary table of an application', "table"),
      'Watch the tables that a view or foreign table reads; nothing temporary, and nothing of ragdb''s own.');
  elsif c.relkind = 'r' and exists (select from pg_inherits i where i.inhparent = c.oid) then
    perform ragdb.refuse_watch(pg_catalog.format('other tables inherit from %s, and its triggers do not see their rows', "table"), 'Watch each of them, with an uri_prefix of its own.');
  elsif not has_table_privilege("table", 'trigger') then
    perform ragdb.refuse_watch(pg_catalog.format('%s may not make triggers on %s', current_user, "table"), pg_catalog.format('Its owner watches it, or: grant trigger on %s to %I', "table", current_user));
  end if;
  select x.* into strict a from pg_attribute x where x.attrelid = "table" and x.attnum = ragdb.watchable_column("table", id, 'id');
  if coalesce((select t.typbasetype from pg_type t where t.oid = a.atttypid and t.typtype = 'd'), a.atttypid)
     not in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'uuid'::regtype, 'text'::regtype, 'varchar'::regtype) then
    perform ragdb.refuse_watch(pg_catalog.format('id "%s" of %s is %s', id, "table", format_type(a.atttypid, a.atttypmod)),
      'An id is smallint, integer, bigint, uuid, text or varchar: it becomes part of a uri. A stored generated column with a unique index may serve.');
  elsif not a.attnotnull then
    perform ragdb.refuse_watch(pg_catalog.format('id "%s" of %s may be null', id, "table"), pg_catalog.format('alter table %s alter column %I set not null', "table", id));
  elsif not coalesce((options ->> 'id_is_unique')::boolean, false) and not exists (
          select from pg_index i where i.indrelid = "table" and i.indisunique and i.indimmediate and i.indisvalid
             and i.indpred is null and i.indnkeyatts = 1 and i.indkey[0] = a.attnum) then
    perform ragdb.refuse_watch(pg_catalog.format('"%s" alone does not tell the rows of %s apart', id, "table"),
      pg_catalog.format('It needs a unique index (not deferrable). Of a key of several columns make one: alter table %s add column document_key text generated always as (a || ''/'' || b) stored unique. '
             'Where an index cannot say it (a partitioned table), promise it: options => ''{"id_is_unique": true}''.', "table"));
  end if;
end
$function$;
comment on function ragdb.check_watchable(regclass, text, jsonb) is 'Refuses a table whose rows cannot be followed, with the reason and what to do.';

-- The watch of a table, by the collection where it has several.
create or replace function ragdb.watch_of("table" regclass, collection text default null) returns ragdb.watched_table
language plpgsql stable
set search_path from current
as $function$
declare
  found_watches ragdb.watched_table[];
begin
  select array_agg(w order by w.watch_id) into found_watches
    from ragdb.watched_table w join ragdb.collection c using (collection_id)
   where exists (select from pg_trigger g where g.tgrelid = "table" and g.tgname = pg_catalog.format('ragdb_watch_%s_update', w.watch_id)
                    and encode(g.tgargs, 'escape') like w.key || '%')
     and (watch_of.collection is null or c.name = watch_of.collection);
  if found_watches is null then
    perform ragdb.refuse_watch(pg_catalog.format('table %s is not watched%s', "table", ' for collection "' || collection || '"'), 'select * from ragdb.watched_tables shows those that are.');
  elsif cardinality(found_watches) > 1 then
    perform ragdb.refuse_watch(pg_catalog.format('table %s is watched %s times', "table", cardinality(found_watches)), 'Name the collection: collection => ''help''.');
  end if;
  return found_watches[1];
end
$function$;
comment on function ragdb.watch_of(regclass, text) is 'The watch of a table; an error where there is none, or several.';

-- Writes the row of a watch: that of the same collection and prefix of the same table (`old_id`), else a new one.
create or replace function ragdb.register_watch(old_id bigint, collection text, watch jsonb) returns ragdb.watched_table
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  w ragdb.watched_table;
  other ragdb.watched_table;
  prefix text := watch ->> 'uri_prefix';
begin
  lock table ragdb.watched_table in share row exclusive mode;
  select x.* into other from ragdb.watched_table x
   where x.collection_id = c.collection_id and x.watch_id is distinct from old_id
     and (starts_with(x.uri_prefix, prefix) or starts_with(prefix, x.uri_prefix))
   order by x.watch_id limit 1;
  if found then
    perform ragdb.refuse_watch(pg_catalog.format('"%s" and the "%s" of watch %s (%s) would share documents of collection "%s"', prefix, other.uri_prefix, other.watch_id, other.named, collection),
      'Name another: options => ''{"uri_prefix": "news/"}''; or end that watch: select ragdb.unwatch(' || other.watch_id || ').');
  end if;
  if old_id is null then
    insert into ragdb.watched_table (collection_id, uri_prefix, named, fields) values (c.collection_id, prefix, watch ->> 'named', watch -> 'fields')
    returning * into w;
  end if;
  update ragdb.watched_table x
     set named = watch ->> 'named', fields = watch -> 'fields', otherwise = coalesce(watch ->> 'otherwise', 'delete'),
         on_error = coalesce(watch ->> 'on_error', 'fail'), media_type = watch ->> 'media_type', progress = null, backfilled_at = null
   where x.watch_id = coalesce(old_id, w.watch_id)
  returning * into w;
  return w;
end
$function$;
comment on function ragdb.register_watch(bigint, text, jsonb) is 'Writes the row of a watch; refuses a prefix that another one has in that collection.';

create or replace function ragdb.watch_table(
  "table" regclass, id text, content text, title text default null, metadata jsonb default '{}', collection text default 'default', options jsonb default '{}')
returns table (watch_id bigint, uri_prefix text, triggers text[])
language plpgsql
set search_path from current
as $function$
declare
  known constant text[] := array['uri_prefix', 'where', 'otherwise', 'on_error', 'status', 'language', 'owner', 'version', 'updated_at', 'review_after',
                                 'media_type', 'id_is_unique', 'take_over'];
  prefix text;
  made jsonb;
  w ragdb.watched_table;
  old_id bigint;
  columns text;
  changed text;
  stray text;
begin
  if jsonb_typeof(coalesce(metadata, '{}')) <> 'object' or jsonb_typeof(coalesce(options, '{}')) <> 'object' or jsonb_typeof(coalesce(options -> 'where', '{}')) <> 'object' then
    perform ragdb.refuse_watch('metadata, options and the where in options are objects', 'metadata => ''{"tenant": "tenant_id"}'', options => ''{"where": {"published": true}}''');
  end if;
  metadata := coalesce(metadata, '{}');
  options := coalesce(options, '{}');
  if exists (select from jsonb_object_keys(options) k where k <> all (known)) then
    perform ragdb.refuse_watch('there is no option ' || (select string_agg('"' || k || '"', ', ' order by k) from jsonb_object_keys(options) k where k <> all (known)),
      'There are: ' || array_to_string(known, ', '));
  end if;
  if options ->> 'otherwise' not in ('delete', 'draft', 'archived') or options ->> 'on_error' not in ('fail', 'warn')
     or options ->> 'media_type' not in ('text/markdown', 'text/plain', 'text/csv') then
    perform ragdb.refuse_watch(pg_catalog.format('otherwise, on_error or media_type has another word than it may have: %s', options),
      'otherwise: delete, draft or archived; on_error: fail or warn; media_type: text/markdown, text/plain or text/csv.');
  end if;
  perform ragdb.check_watchable("table", id, options);
  made := ragdb.watch_fields("table", id, content, title, metadata, options);
  prefix := coalesce(options ->> 'uri_prefix', (select c.relname || '/' from pg_class c where c.oid = "table"));
  if prefix = '' or octet_length(prefix) > 500 then
    perform ragdb.refuse_watch(pg_catalog.format('uri_prefix has %s bytes', octet_length(prefix)), 'It has 1 to 500: the documents of a table are those whose uri begins so.');
  end if;

  select x.watch_id into old_id
    from ragdb.watched_table x join ragdb.collection c using (collection_id)
   where c.name = watch_table.collection and x.uri_prefix = prefix
     and exists (select from pg_trigger g where g.tgrelid = "table" and g.tgname = pg_catalog.format('ragdb_watch_%s_update', x.watch_id)
                    and encode(g.tgargs, 'escape') like x.key || '%');
  w := ragdb.register_watch(old_id, collection, options || made || pg_catalog.jsonb_build_object('uri_prefix', prefix, 'named', "table"::text));

  select string_agg(pg_catalog.format('%I', c.name), ', ' order by c.n),
         string_agg(pg_catalog.format(case when ragdb.is_compared("table", c.name) then 'old.%1$I is distinct from new.%1$I' else 'old.%1$I::pg_catalog.text is distinct from new.%1$I::pg_catalog.text' end, c.name), ' or ' order by c.n)
    into columns, changed
    from jsonb_array_elements_text(made -> 'columns') with ordinality c(name, n);
  execute pg_catalog.format('create or replace trigger %I after insert on %s for each row execute function ragdb.watch_row(%L)', pg_catalog.format('ragdb_watch_%s_insert', w.watch_id), "table", w.key);
  execute pg_catalog.format('create or replace trigger %I after update of %s on %s for each row when (%s) execute function ragdb.watch_row(%L)',
                 pg_catalog.format('ragdb_watch_%s_update', w.watch_id), columns, "table", changed, w.key);
  execute pg_catalog.format('create or replace trigger %I after delete on %s for each row execute function ragdb.watch_row(%L)', pg_catalog.format('ragdb_watch_%s_delete', w.watch_id), "table", w.key);
  execute pg_catalog.format('create or replace trigger %I after truncate on %s for each statement execute function ragdb.watch_row(%L)', pg_catalog.format('ragdb_watch_%s_truncate', w.watch_id), "table", w.key);

  if old_id is null and not coalesce((options ->> 'take_over')::boolean, false) then
    stray := ragdb.stray_document(w.watch_id, "table");
    if stray is not null then
      perform ragdb.refuse_watch(pg_catalog.format('document "%s" is no row of %s, but all documents under "%s" would be the table''s', stray, "table", prefix),
        'Name another prefix (options => ''{"uri_prefix": "news/"}''), or let ragdb.backfill_table() delete what has no row: options => ''{"take_over": true}''.');
    end if;
  end if;
  return query select w.watch_id, prefix, array(select g.tgname::text from pg_trigger g where g.tgrelid = "table" and g.tgname like pg_catalog.format('ragdb\_watch\_%s\_%%', w.watch_id) order by g.tgname);
end
$function$;
comment on function ragdb.watch_table(regclass, text, text, text, jsonb, text, jsonb) is
  'Makes the rows of a table documents of a collection, by triggers that follow inserts, updates, deletes and truncate; again changes it.';

-- Whether PostgreSQL can compare the column by itself. An operator of another schema is not found when a dump is restored.
create or replace function ragdb.is_compared("table" regclass, name text) returns boolean
language sql stable
set search_path from current
as $function$
  select t.typnamespace = 'pg_catalog'::regnamespace
         and exists (select from pg_operator o where o.oprname = '=' and o.oprnamespace = 'pg_catalog'::regnamespace
                        and o.oprleft = o.oprright and o.oprleft = case when t.typcategory = 'A' then 'anyarray'::regtype when t.typname = 'varchar' then 'text'::regtype else t.oid end)
         and t.oid <> all (array['json[]', 'xml[]', 'point[]', 'polygon[]', 'jsonpath[]']::regtype[])
    from pg_attribute a join pg_type t on t.oid = a.atttypid
   where a.attrelid = "table" and a.attname = is_compared.name
$function$;
comment on function ragdb.is_compared(regclass, text) is 'Whether values of a column can be compared with the operators of pg_catalog.';

-- Ends a watch by its number, for a table that is gone too.
create or replace function ragdb.unwatch(watch_id bigint, documents boolean default false) returns jsonb
language plpgsql
set search_path from current
as $function$
declare
  g record;
  n integer := 0;
begin
  if not exists (select from ragdb.watched_table w where w.watch_id = unwatch.watch_id) then
    perform ragdb.refuse_watch(pg_catalog.format('there is no watch %s', watch_id), 'select * from ragdb.watched_tables');
  end if;
  for g in select t.tgrelid::regclass as relation, t.tgname
             from pg_trigger t join pg_proc p on p.oid = t.tgfoid join ragdb.watched_table w on encode(t.tgargs, 'escape') like w.key || '%'
            where p.proname = 'watch_row' and p.pronamespace = 'ragdb'::regnamespace and w.watch_id = unwatch.watch_id and t.tgparentid = 0
            order by t.tgrelid, t.tgname loop
    execute pg_catalog.format('drop trigger %I on %s', g.tgname, g.relation);
  end loop;
  if documents then
    n := ragdb.delete_watched(watch_id);
  end if;
  perform ragdb.forget_watch(watch_id);
  return pg_catalog.jsonb_build_object('watches', 1, 'documents', n);
end
$function$;
comment on function ragdb.unwatch(bigint, boolean) is 'Ends a watch: drops its triggers, and with `documents` its documents; returns counts.';

create or replace function ragdb.forget_watch(watch_id bigint) returns void
language sql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  delete from ragdb.watched_table w where w.watch_id = forget_watch.watch_id
$function$;
comment on function ragdb.forget_watch(bigint) is 'Removes the row of a watch.';

create or replace function ragdb.unwatch_table("table" regclass, collection text default null, documents boolean default false) returns jsonb
language plpgsql
set search_path from current
as $function$
begin
  return ragdb.unwatch((ragdb.watch_of("table", collection)).watch_id, documents);
end
$function$;
comment on function ragdb.unwatch_table(regclass, text, boolean) is
  'Ends the watch of a table: drops its triggers, and with `documents` its documents too; else they stay as they are.';
