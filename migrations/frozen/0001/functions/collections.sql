-- Registers a vector set, or finds it. Another dimension under the same name is refused with both numbers.
create or replace function ragdb.register_model(
  model text, dims integer, query_prefix text default '', passage_prefix text default '', max_tokens integer default 512,
  evidence_floor double precision default null)
returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  m ragdb.embedding_model;
begin
  insert into ragdb.embedding_model (name, dims, query_prefix, passage_prefix, max_tokens, evidence_floor)
  values (model, dims, query_prefix, passage_prefix, max_tokens, evidence_floor)
  on conflict (name) do nothing;
  select * into strict m from ragdb.embedding_model e where e.name = model;
  if m.dims <> dims or m.query_prefix <> query_prefix or m.passage_prefix <> passage_prefix then
    raise exception 'model "%" is recorded with % dimensions and prefixes "%", "%", but now has % and "%", "%"',
      model, m.dims, m.query_prefix, m.passage_prefix, dims, query_prefix, passage_prefix
      using errcode = 'RD003', hint = 'Use the recorded model, or give the other one a name of its own.';
  end if;
  -- a floor that was measured later counts from now on
  update ragdb.embedding_model e set evidence_floor = register_model.evidence_floor
   where e.model_id = m.model_id and register_model.evidence_floor is distinct from e.evidence_floor
     and register_model.evidence_floor is not null;
  return m.model_id;
end
$function$;
comment on function ragdb.register_model(text, integer, text, text, integer, double precision) is
  'Registers an embedding model and returns its id; refuses another dimension or other prefixes under a known name.';

-- Makes a collection, or finds it. settings: text_search_config, k1, b, pivot_length, exact_limit, candidate_budget,
-- chunker (a name, for programs that name none), analyzer (builtin, or external: lexemes come with chunks and questions).
-- A collection keeps its model: another one is refused with both names.
create or replace function ragdb.create_collection(collection text, model_id bigint default null, settings jsonb default '{}')
returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection;
begin
  select * into c from ragdb.collection x where x.name = collection;
  if not found then
    -- raises here, with its name, if there is no such configuration
    -- and so is one of somebody else's, who could drop it and end every search with an error
    if not exists (select from pg_ts_config t join pg_roles r on r.oid = t.cfgowner
                    where t.oid = coalesce(settings ->> 'text_search_config', 'pg_catalog.english')::regconfig
                      and (t.cfgnamespace = 'pg_catalog'::regnamespace or r.rolsuper or pg_has_role(current_user, r.oid, 'usage'))) then
      raise exception 'text-search configuration % belongs neither to the owner of ragdb nor to an administrator', settings ->> 'text_search_config'
        using errcode = 'RD004', hint = 'Let the owner make it, or use one of pg_catalog.';
    end if;
    if settings ->> 'analyzer' not in ('builtin', 'external') then
      raise exception 'analyzer is "%"', settings ->> 'analyzer' using errcode = 'RD004', hint = 'It is builtin or external.';
    end if;
    insert into ragdb.collection (name, active_model_id, text_search_config, analyzer, chunker, k1, b, pivot_length, exact_limit, candidate_budget)
    values (collection, model_id,
            coalesce(settings ->> 'text_search_config', 'pg_catalog.english'), coalesce(settings ->> 'analyzer', 'builtin'),
            settings ->> 'chunker',
            coalesce((settings ->> 'k1')::double precision, 1.2), coalesce((settings ->> 'b')::double precision, 0.75),
            coalesce((settings ->> 'pivot_length')::double precision, 120),
            coalesce((settings ->> 'exact_limit')::integer, 10000), coalesce((settings ->> 'candidate_budget')::integer, 6000))
    on conflict (name) do nothing;
    select * into strict c from ragdb.collection x where x.name = collection;
  end if;
  if c.active_model_id is null and model_id is not null then
    update ragdb.collection x set active_model_id = model_id where x.collection_id = c.collection_id;
  elsif c.active_model_id <> model_id then
    raise exception 'collection "%" is embedded with "%" (% dimensions), not with "%" (% dimensions)', collection,
      (select name from ragdb.embedding_model e where e.model_id = c.active_model_id),
      (select dims from ragdb.embedding_model e where e.model_id = c.active_model_id),
      (select name from ragdb.embedding_model e where e.model_id = create_collection.model_id),
      (select dims from ragdb.embedding_model e where e.model_id = create_collection.model_id)
      using errcode = 'RD003', hint = 'Use the collection''s model, or another collection.';
  end if;
  return c.collection_id;
end
$function$;
comment on function ragdb.create_collection(text, bigint, jsonb) is
  'Makes a collection and returns its id, or returns that of an existing one; refuses another model than its own.';

-- A collection with its active model, for clients; no row where there is none. fusion: its own settings of fuse, if any.
create or replace function ragdb.collection_info(collection text)
returns table (collection_id bigint, model_id bigint, model text, dims integer, evidence_floor double precision, analyzer text, chunker text,
               fusion jsonb)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select c.collection_id, m.model_id, m.name, m.dims, m.evidence_floor, c.analyzer, c.chunker, c.fusion - 'source'
    from ragdb.collection c
    left join ragdb.embedding_model m on m.model_id = c.active_model_id
   where c.name = collection and ragdb.read_limits(c.collection_id) is distinct from '[]'
$function$;
comment on function ragdb.collection_info(text) is 'A collection with its active embedding model; no row where there is none.';

-- How large a collection is for the caller, and how many of its documents wait to be embedded. Reads every document row.
create or replace function ragdb.collection_counts(collection text)
returns table (n_documents bigint, n_chunks bigint, n_waiting bigint)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  id bigint := (select c.collection_id from ragdb.collection c where c.name = collection);
  filter record;
  reason text;
begin
  if id is null or ragdb.read_limits(id) = '[]' then
    return query select 0::bigint, 0::bigint, 0::bigint;
    return;
  end if;
  filter := ragdb.document_filter(id, '{"status": "any"}');
  return query execute pg_catalog.format($sql$
    select count(*), coalesce(sum(d.n_chunks), 0)::bigint, count(*) filter (where d.ingest_state in ('queued', 'processing'))
      from ragdb.document d
     where d.collection_id = $1 and %s$sql$, filter.condition)
    using id, filter.vals;
exception when query_canceled or others then
  reason := ragdb.filter_error(id, null, sqlstate, sqlerrm);
  if reason is null then
    raise;
  end if;
  raise exception '%', reason using errcode = ragdb.filter_error_state(sqlstate);
end
$function$;
comment on function ragdb.collection_counts(text) is
  'How many documents and chunks of a collection the caller reads, and how many of the documents wait to be embedded.';
