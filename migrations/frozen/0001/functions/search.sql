-- How long the list of each leg is: options.candidates (50), doubled until the page asked for is inside, at most 1000, so
-- that neighbouring pages see the same lists (as the Python path does).
create or replace function ragdb.list_length(k integer, options jsonb) returns integer
language plpgsql immutable
set search_path from current
as $function$
declare
  candidates integer := coalesce((options ->> 'candidates')::integer, 50);
  skip integer := coalesce((options ->> 'offset')::integer, 0);
begin
  if k is null or k < 1 or k > 1000 or skip < 0 or skip > 100000 then
    raise exception 'k is %, offset is %; k is from 1 to 1000, offset from 0 to 100000', k, skip using errcode = 'RD004';
  end if;
  if candidates < 1 or candidates > 1000 then
    raise exception 'candidates is %; it is from 1 to 1000', candidates using errcode = 'RD004';
  end if;
  while candidates < least(k + skip, 1000) loop
    candidates := candidates * 2;
  end loop;
  return least(candidates, 1000);
end
$function$;
comment on function ragdb.list_length(integer, jsonb) is 'How long the list of each leg is for k and the options candidates and offset of a search; errors for what is out of range.';

-- The one call for psql: both legs, fused, with the text.
--   select * from ragdb.search('在宅勤務手当', collection => 'help', k => 5);
-- candidates, rrf_k and weights that are not given are the collection's own (ragdb.set_fusion), where it has some; {"tuned": false}
-- leaves these out.
-- Without query_vector the vector of this question from ragdb.query_vector serves; where there is none, the
-- lexical leg answers alone and a NOTICE says so. Options: offset (0), candidates (50), rrf_k (60),
-- weights ({"lexical": 1, "semantic": 1}), tuned (true), legs (["lexical", "semantic"]), model (the name of another vector set than
-- the active one) or model_id, exact_limit, lexemes (of the question,
-- in a collection with an external analyzer).
create or replace function ragdb.search(
  question text, collection text default 'default', k integer default 10, "where" jsonb default '{}',
  query_vector double precision[] default null, options jsonb default '{}')
returns table (
  rank integer, score double precision, label text, content text, uri text, title text, heading_path text[], status text,
  start_at integer, end_at integer, page integer, metadata jsonb, ranks jsonb, context text, chunk_id bigint, document_id bigint)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  skip integer;
  candidates integer;
  legs jsonb;
  lists jsonb := '{}';
  leg record;
begin
  options := coalesce(options, '{}');
  perform ragdb.check_search(question, options);
  options := ragdb.with_fusion(c, options);
  skip := coalesce((options ->> 'offset')::integer, 0);
  legs := coalesce(options -> 'legs', '["lexical", "semantic"]');
  candidates := ragdb.list_length(k, options);

  if legs ? 'semantic' and query_vector is null then
    query_vector := ragdb.known_query_vector(question, ragdb.chosen_model(c, options));
    if query_vector is null then
      raise notice 'no vector for this question: lexical search only (pass query_vector, or ask it once from Python or the ragdb command)';
    end if;
  end if;

  loop
    if legs ? 'lexical' then
      lists := lists || pg_catalog.jsonb_build_object('lexical', (select to_jsonb(l.chunk_ids) from ragdb.lexical_leg(question, collection, candidates, "where", options) l));
    end if;
    if legs ? 'semantic' and query_vector is not null then
      leg := ragdb.semantic_leg(query_vector, collection, candidates, "where", options);
      lists := lists || pg_catalog.jsonb_build_object('semantic', to_jsonb(leg.chunk_ids));
      if leg.path = 'behind' then
        raise notice '%', leg.note;
      end if;
    end if;
    -- copies of one text count once: where they fill a list and leave too little, longer ones (as the Python path does)
    exit when candidates = 1000
           or not exists (select from jsonb_each(lists) l where jsonb_array_length(l.value) >= candidates)
           or (select count(distinct ch.text_hash) >= least(k + skip, 1000)
                 from jsonb_each(lists) l, jsonb_array_elements_text(l.value) i join ragdb.chunk ch on ch.chunk_id = i::bigint);
    candidates := least(candidates * 2, 1000);
  end loop;

  return query
  select f.rank, f.score, f.label, f.content, f.uri, f.title, f.heading_path, f.status,
         f.start_at, f.end_at, f.page, f.metadata, f.ranks, f.context, f.chunk_id, f.document_id
    from ragdb.fuse(lists, question, collection, options || pg_catalog.jsonb_build_object('content_for', k + skip)) f
   where f.rank > skip
   order by f.rank;
end
$function$;
comment on function ragdb.search(text, text, integer, jsonb, double precision[], jsonb) is
  'Hybrid search: both legs fused by RRF, k chunks with their text, best first; the same ranking as from Python.';

-- Refuses what is wrong in a call of ragdb.search() or ragdb.search_plan(), by its name.
create or replace function ragdb.check_search(question text, options jsonb, allowed text[] default '{}') returns void
language plpgsql stable
set search_path from current
as $function$
declare
  wrong text;
  legs jsonb;
begin
  if jsonb_typeof(options) <> 'object' then
    raise exception 'options is %, not an object', jsonb_typeof(options)
      using errcode = 'RD004', hint = 'Write it like {"offset": 10}.';
  end if;
  allowed := allowed || '{offset,candidates,rrf_k,weights,tuned,legs,model,model_id,exact_limit,lexemes}'::text[];
  select string_agg(o.key, ', ' order by o.key) into wrong from jsonb_each(options) o where o.key <> all (allowed);
  if wrong is not null then
    raise exception 'unknown option %', wrong
      using errcode = 'RD004', hint = pg_catalog.format('Options are %s.', array_to_string(allowed, ', '));
  end if;
  select pg_catalog.format('%s is %s', o.key, left(o.value::text, 80)) into wrong
    from jsonb_each(options) o
   where o.key in ('offset', 'candidates', 'rrf_k', 'model_id', 'exact_limit') and o.value <> 'null'
     and (jsonb_typeof(o.value) <> 'number' or o.value::text !~ '^-?\d{1,9}$')
   limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'RD004', hint = 'It is a whole number.';
  end if;
  if jsonb_typeof(options -> 'model') not in ('string', 'null') then
    raise exception 'model is %', left((options -> 'model')::text, 80) using errcode = 'RD004', hint = 'It is the name of an embedding model.';
  end if;
  if jsonb_typeof(options -> 'tuned') <> 'boolean' then
    raise exception 'tuned is %', left((options -> 'tuned')::text, 80)
      using errcode = 'RD004', hint = 'It is true (the collection''s own settings of fuse hold where none are given) or false.';
  end if;
  legs := coalesce(options -> 'legs', '["lexical", "semantic"]');
  if jsonb_typeof(legs) <> 'array' or not legs <@ '["lexical", "semantic"]' or legs = '[]' then
    raise exception 'legs is %', legs using errcode = 'RD004', hint = 'It is a list of lexical and semantic.';
  end if;
  if jsonb_typeof(options -> 'weights') = 'object' then
    select string_agg(w.key, ', ') into wrong from jsonb_each(options -> 'weights') w where w.key not in ('lexical', 'semantic');
    if wrong is not null then
      raise exception 'weights has %', wrong using errcode = 'RD004', hint = 'Weights are by leg: {"lexical": 1, "semantic": 1}.';
    end if;
  end if;
  if question is null or btrim(question, E' \t\r\n\u3000') = '' then
    raise exception 'the question is empty' using errcode = 'RD005', hint = 'Give at least one word to search for.';
  end if;
end
$function$;
comment on function ragdb.check_search(text, jsonb, text[]) is 'Errors for a question or options that a search does not take.';
