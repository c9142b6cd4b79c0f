-- Who reads what. Whoever may execute ragdb.put_document() (the owner, writers, superusers) reads every collection; all
-- others what ragdb.collection_grant says, for their role or for one whose rights they inherit:
--   select ragdb.grant_collection('help', 'support');                                       -- the whole collection
--   select ragdb.grant_collection('help', 'acme', "where" => '{"tenant": 7}');              -- these documents only
--   select ragdb.grant_collection('help', 'shop', "where" => '{"tenant": {"setting": "app.tenant"}}');
--   select ragdb.grant_collection('help', 'staff', "where" => '{"filter": {"docs_of_role": []}}');
-- Every function that shows text or names of documents asks here, with the role that asks, and not with the one that
-- a SECURITY DEFINER function runs as. No right and no such collection give the same error.

-- As text: a name has the collation "C", and no index of a text column of the default one serves a comparison with it.
create or replace function ragdb.caller() returns text
language sql stable parallel safe
set search_path from current
as $function$
  select coalesce(nullif(current_setting('role'), 'none'), session_user::text)
$function$;
comment on function ragdb.caller() is 'The role that asks, right inside SECURITY DEFINER functions and after SET ROLE too.';

-- ANALYZE, autovacuum, CREATE INDEX and REFRESH MATERIALIZED VIEW run a table owner's functions in a session of somebody
-- else, often a superuser: whose rights would be asked about is not who asks. There UNLISTEN, which does nothing
-- elsewhere, is refused; PostgreSQL has no other sign of it that is seen inside SECURITY DEFINER.
create or replace function ragdb.refuse_maintenance() returns void
language plpgsql volatile
set search_path from current
as $function$
begin
  execute 'unlisten ragdb_nothing';
exception when insufficient_privilege then
  raise exception 'ragdb cannot tell who asks inside ANALYZE, CREATE INDEX or REFRESH MATERIALIZED VIEW'
    using errcode = 'insufficient_privilege', hint = 'Search in a statement of its own, and store what it found.';
end
$function$;
comment on function ragdb.refuse_maintenance() is 'An error inside ANALYZE and the like, where functions run in a session that is not the one who asks.';

create or replace function ragdb.reads_all() returns boolean
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  perform ragdb.refuse_maintenance();
  return has_function_privilege(ragdb.caller(), 'ragdb.put_document(text, jsonb, jsonb)'::regprocedure, 'execute');
end
$function$;
comment on function ragdb.reads_all() is 'Whether the caller reads every collection: who may write documents does.';

-- A `where` of a grant with its settings looked up: {"tenant": {"setting": "app.tenant"}} becomes {"tenant": {"in": ["7", 7]}},
-- as text and as the number or truth value that it reads as; a setting that is not set, or empty, matches nothing.
-- A setting may also be a value of a live filter: {"filter": {"docs_of": [{"setting": "app.username"}]}}. Any SQL login can
-- set such a setting: it is for an application that does, not for people with psql.
create or replace function ragdb.with_settings("where" jsonb) returns jsonb
language plpgsql stable
set search_path from current
as $function$
declare
  key text;
  value jsonb;
  word text;
  found jsonb := '{}';
begin
  if jsonb_typeof("where") is distinct from 'object' then
    return "where";
  end if;
  for key, value in select e.key, e.value from jsonb_each("where") e loop
    if key = 'any' and jsonb_typeof(value) = 'array' then
      value := (select coalesce(jsonb_agg(ragdb.with_settings(a.value) order by a.n), '[]')
                  from jsonb_array_elements(value) with ordinality as a(value, n));
    elsif key = 'filter' and jsonb_typeof(value) = 'object' then
      value := (
        select jsonb_object_agg(f.key, case when jsonb_typeof(f.value) <> 'array' then f.value else (
                 select coalesce(jsonb_agg(case when jsonb_typeof(v.value) = 'object' and v.value ? 'setting'
                                                then coalesce(to_jsonb(ragdb.setting_value(v.value)), 'null') else v.value end order by v.n), '[]')
                   from jsonb_array_elements(f.value) with ordinality as v(value, n)) end)
          from jsonb_each(value) f);
    elsif jsonb_typeof(value) = 'object' and value ? 'setting' then
      word := ragdb.setting_value(value);
      value := pg_catalog.jsonb_build_object('in', (
        select coalesce(jsonb_agg(w.kind), '[]')
          from (select to_jsonb(word) as kind where key <> 'document_id'
                union all
                select word::jsonb where key not in ('status', 'uri', 'title', 'language', 'owner', 'version', 'updated_at', 'review_after')
                                     and word ~ '^(true|false|0|-?[1-9]\d{0,30})$') w
         where word is not null));
    end if;
    found := found || pg_catalog.jsonb_build_object(key, value);
  end loop;
  return found;
end
$function$;
comment on function ragdb.with_settings(jsonb) is 'The where of a grant with {"setting": name} replaced by the setting''s value.';

create or replace function ragdb.setting_value(given jsonb) returns text
language plpgsql stable
set search_path from current
as $function$
begin
  if given - 'setting' <> '{}' or given ->> 'setting' is null or given ->> 'setting' !~ '^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)+$' then
    raise exception 'where: % names no setting', left(given::text, 80)
      using errcode = 'RD001', hint = 'Write it like {"tenant": {"setting": "app.tenant"}}: a name of two parts, and nothing beside it.';
  end if;
  return nullif(current_setting(given ->> 'setting', true), '');
end
$function$;
comment on function ragdb.setting_value(jsonb) is 'The value of {"setting": "app.tenant"}; null where it is not set, or empty.';

-- What the caller reads of a collection: null is all of it, [] nothing, else a list of `where`, of which one has to match.
create or replace function ragdb.read_limits(collection_id bigint) returns jsonb
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  me text := ragdb.caller();
  limits jsonb;
  whole boolean;
begin
  if ragdb.reads_all() then
    return null;
  end if;
  select coalesce(jsonb_agg(distinct g."where"), '[]'), coalesce(bool_or(g."where" = '{}'), false) into limits, whole
    from ragdb.collection_grant g
    left join pg_roles r on r.rolname = g.grantee       -- a role that is gone has no members
   where g.collection_id = read_limits.collection_id
     and (g.grantee = 'public' or pg_has_role(me, r.oid, 'usage'));
  if whole then
    return null;
  end if;
  begin
    return (select coalesce(jsonb_agg(ragdb.with_settings(l.value) order by l.value), '[]') from jsonb_array_elements(limits) l);
  exception when others then
    raise exception 'a grant of role "%" cannot be used', me
      using errcode = 'RD007', hint = 'Its "where" is wrong: the owner grants it anew with ragdb.grant_collection().';
  end;
end
$function$;
comment on function ragdb.read_limits(bigint) is
  'What the caller reads of a collection: null all of it, [] nothing, else a list of where, one of which has to match.';

-- A hash of it, to compare: what a grant says is not for all who are held by it.
create or replace function ragdb.limits_hash(read_limits jsonb) returns bytea
language sql immutable
set search_path from current
as $function$
  select sha256(convert_to(read_limits::text, 'UTF8'))
$function$;
comment on function ragdb.limits_hash(jsonb) is 'A hash of what ragdb.read_limits() says; null: all of a collection.';

create or replace function ragdb.whole_collections() returns bigint[]
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select coalesce(array_agg(c.collection_id order by c.collection_id), '{}')
    from ragdb.collection c where ragdb.read_limits(c.collection_id) is null
$function$;
comment on function ragdb.whole_collections() is 'Ids of the collections that the caller reads whole.';

-- A collection by name, for those who write; for who reads, ragdb.readable_collection().
create or replace function ragdb.known_collection(collection text) returns ragdb.collection
language plpgsql stable
set search_path from current
as $function$
declare
  c ragdb.collection;
begin
  select * into c from ragdb.collection x where x.name = collection;
  if not found then
    raise exception 'collection "%" does not exist', collection
      using errcode = 'RD002', hint = 'Add a document to it, or look at: select collection from ragdb.list_collections()';
  end if;
  return c;
end
$function$;
comment on function ragdb.known_collection(text) is 'The row of a collection; an error where there is none.';

create or replace function ragdb.readable_collection(collection text) returns ragdb.collection
language plpgsql stable
set search_path from current
as $function$
declare
  c ragdb.collection;
begin
  select * into c from ragdb.collection x where x.name = collection;
  if not found or ragdb.read_limits(c.collection_id) = '[]' then
    raise exception 'collection "%" does not exist', collection
      using errcode = 'RD002', hint = 'Add a document to it, or look at: select collection from ragdb.list_collections()';
  end if;
  return c;
end
$function$;
comment on function ragdb.readable_collection(text) is
  'The row of a collection that the caller reads, whole or in part; an error where there is none.';

-- ragdb.where_clause() with what the caller may read of the collection: both have to hold. `limited`: it says more than
-- the caller's own `where`.
create or replace function ragdb.document_filter(collection_id bigint, "where" jsonb, out condition text, out vals jsonb, out limited boolean)
language plpgsql stable
set search_path from current
as $function$
declare
  limits jsonb := ragdb.read_limits(collection_id);
  alternative jsonb;
  sub record;
  parts text[] := '{}';
begin
  vals := '[]';
  limited := limits is not null;
  if limited then
    begin
      for alternative in select l.value from jsonb_array_elements(limits) l loop
        sub := ragdb.where_clause(alternative, 1, vals);
        vals := sub.vals;
        parts := parts || sub.condition;
      end loop;
    exception when others then
      raise exception 'a grant of role "%" cannot be used', ragdb.caller()
        using errcode = 'RD007', hint = 'Its "where" is wrong: the owner grants it anew with ragdb.grant_collection().';
    end;
  end if;
  sub := ragdb.where_clause("where", 0, vals);
  vals := sub.vals;
  condition := sub.condition;
  if limited then
    condition := pg_catalog.format('(%s and (%s))', condition, case when parts = '{}' then 'false' else array_to_string(parts, ' or ') end);
  end if;
end
$function$;
comment on function ragdb.document_filter(bigint, jsonb) is
  'where to a SQL condition over document d, with what the caller may read of the collection; its values are $2.';

-- Those of these documents that the caller reads.
create or replace function ragdb.readable_documents(document_ids bigint[]) returns bigint[]
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  c bigint;
  filter record;
  batch bigint[];
  found bigint[] := '{}';
  reason text;
begin
  if ragdb.reads_all() then
    return document_ids;
  end if;
  for c in select distinct d.collection_id from ragdb.document d where d.document_id = any (document_ids) loop
    filter := ragdb.document_filter(c, '{"status": "any"}');
    execute pg_catalog.format('select coalesce(array_agg(d.document_id), ''{}'') from ragdb.document d where d.collection_id = $1 and d.document_id = any ($3) and %s', filter.condition)
       into batch using c, filter.vals, document_ids;
    found := found || batch;
  end loop;
  return found;
exception when query_canceled or others then
  reason := ragdb.filter_error(c, null, sqlstate, sqlerrm);
  if reason is null then
    raise;
  end if;
  raise exception '%', reason using errcode = ragdb.filter_error_state(sqlstate);
end
$function$;
comment on function ragdb.readable_documents(bigint[]) is 'Those of these documents that the caller reads.';

-- All documents of the collections that the caller reads in part, for the policy of ragdb.document.
create or replace function ragdb.limited_documents() returns setof bigint
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  c bigint;
  filter record;
  reason text;
begin
  for c in select x.collection_id from ragdb.collection x where ragdb.read_limits(x.collection_id) <> '[]' loop
    filter := ragdb.document_filter(c, '{"status": "any"}');
    return query execute pg_catalog.format('select d.document_id from ragdb.document d where d.collection_id = $1 and %s', filter.condition)
      using c, filter.vals;
  end loop;
exception when query_canceled or others then
  reason := ragdb.filter_error(c, null, sqlstate, sqlerrm);
  if reason is null then
    raise;
  end if;
  raise exception '%', reason using errcode = ragdb.filter_error_state(sqlstate);
end
$function$;
comment on function ragdb.limited_documents() is 'The documents that the caller reads in collections that he reads in part.';

-- Auditors, who may read the whole table ragdb.run_stage, and those who read all documents, see every run.
create or replace function ragdb.reads_all_runs() returns boolean
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  return ragdb.reads_all() or has_table_privilege(ragdb.caller(), 'ragdb.run_stage'::regclass, 'select');
end
$function$;
comment on function ragdb.reads_all_runs() is 'Whether the caller sees every run: auditors and writers do.';

-- All others see the runs of their own role, as long as the role reads of the collection what it did then: a role that
-- serves many tenants shows each its own, and no document that it no longer reads is quoted.
create or replace function ragdb.reads_run(collection text, caller text, limits_hash bytea, document_ids bigint[]) returns boolean
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  limits jsonb;
  readable bigint[];
begin
  if ragdb.reads_all_runs() then
    return true;
  end if;
  if caller <> ragdb.caller() then
    return false;
  end if;
  limits := coalesce((select coalesce(ragdb.read_limits(c.collection_id), 'null') from ragdb.collection c where c.name = collection), '[]');
  if limits = '[]' or ragdb.limits_hash(nullif(limits, 'null')) is distinct from reads_run.limits_hash then
    return false;
  end if;
  -- a live filter may look at more than the grant tells: without documents nothing says whose run it was
  if limits::text ~ '"filter"' and document_ids = '{}' then
    return false;
  end if;
  readable := ragdb.readable_documents(document_ids);
  return not exists (select from ragdb.document d where d.document_id = any (document_ids) and d.document_id <> all (readable));
end
$function$;
comment on function ragdb.reads_run(text, text, bytea, bigint[]) is 'Whether the caller sees a run with these columns.';

-- Lets a role read a collection, or with `where` a part of it; several grants add up. For the schema's owner.
create or replace function ragdb.grant_collection(collection text, grantee text, "where" jsonb default '{}', comment text default null) returns void
language plpgsql
set search_path from current
as $function$
declare
  c ragdb.collection;
begin
  perform ragdb.require_owner('grants collections');
  c := ragdb.known_collection(collection);
  if grantee is distinct from 'public' and not exists (select from pg_roles r where r.rolname = grantee) then
    raise exception 'role "%" does not exist', grantee
      using errcode = 'RD004', hint = 'An administrator makes it first; a grant to public is for all who may call the search functions.';
  end if;
  perform ragdb.where_clause(ragdb.with_settings("where"), 1);
  insert into ragdb.collection_grant (collection_id, grantee, "where", comment)
  select c.collection_id, grant_collection.grantee, grant_collection."where", grant_collection.comment
   where not exists (select from ragdb.collection_grant g
                      where g.collection_id = c.collection_id and g.grantee = grant_collection.grantee and g."where" = grant_collection."where");
end
$function$;
comment on function ragdb.grant_collection(text, text, jsonb, text) is
  'Lets a role read a collection, or with a where a part of it. For the schema''s owner.';

-- Takes all grants of a role on a collection, or the one with this `where`. Returns how many there were.
create or replace function ragdb.revoke_collection(collection text, grantee text, "where" jsonb default null) returns integer
language plpgsql
set search_path from current
as $function$
declare
  c ragdb.collection;
  n integer;
begin
  perform ragdb.require_owner('revokes grants');
  c := ragdb.known_collection(collection);
  delete from ragdb.collection_grant g
   where g.collection_id = c.collection_id and g.grantee = revoke_collection.grantee
     and g."where" = coalesce(revoke_collection."where", g."where");
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.revoke_collection(text, text, jsonb) is
  'Takes the grants of a role on a collection, or the one with this where; returns how many. For the schema''s owner.';
