-- Settings of fuse that a collection keeps: they hold in every search that does not say otherwise. Found by `ragdb eval tune`,
-- or written by hand; null removes them.
--   select ragdb.set_fusion('help', '{"weights": {"lexical": 0.7, "semantic": 0.3}, "rrf_k": 30, "candidates": 100}');
-- Keys: weights (by leg, at least one above 0), rrf_k (0 to 10000), candidates (1 to 1000); what is left out keeps its default.
-- `source` says where they come from, as an object: it is kept, with who set them and when (`by`, `at`), and read by people only.
create or replace function ragdb.set_fusion(collection text, fusion jsonb) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
#variable_conflict use_variable
declare
  c ragdb.collection := ragdb.known_collection(collection);
  weights jsonb := fusion -> 'weights';
  wrong text;
begin
  if fusion is null or fusion = 'null' then
    update ragdb.collection x set fusion = null where x.collection_id = c.collection_id;
    return;
  end if;
  if jsonb_typeof(fusion) <> 'object' then
    raise exception 'fusion is %, not an object', jsonb_typeof(fusion)
      using errcode = 'RD004', hint = 'Write it like {"weights": {"lexical": 0.7, "semantic": 0.3}, "rrf_k": 30, "candidates": 100}; null removes it.';
  end if;
  select string_agg(f.key, ', ' order by f.key) into wrong from jsonb_each(fusion) f where f.key not in ('weights', 'rrf_k', 'candidates', 'source');
  if wrong is not null or fusion - 'source' = '{}' then
    raise exception 'fusion has %', coalesce(wrong, 'no setting')
      using errcode = 'RD004', hint = 'Its settings are weights, rrf_k and candidates; null removes them all.';
  end if;
  select pg_catalog.format('%s is %s; it is a whole number from %s to %s', n.name, left((fusion -> n.name)::text, 80), n.least, n.most) into wrong
    from (values ('rrf_k', 0, 10000), ('candidates', 1, 1000)) as n(name, least, most)
   where fusion ? n.name
     and not coalesce(jsonb_typeof(fusion -> n.name) = 'number' and fusion ->> n.name ~ '^\d{1,9}$'
                      and case when fusion ->> n.name ~ '^\d{1,9}$' then (fusion ->> n.name)::integer between n.least and n.most end, false)
   limit 1;
  if wrong is not null then
    raise exception '%', wrong using errcode = 'RD004';
  end if;
  if fusion ? 'weights' and (
       jsonb_typeof(weights) <> 'object'
       or exists (select from jsonb_each(case jsonb_typeof(weights) when 'object' then weights else '{}' end) w
                   where w.key not in ('lexical', 'semantic') or jsonb_typeof(w.value) <> 'number'
                      or not case when jsonb_typeof(w.value) = 'number' then w.value::numeric between 0 and 1000000 end)
       or weights @> '{"lexical": 0, "semantic": 0}') then
    raise exception 'weights is %', left(weights::text, 200)
      using errcode = 'RD004', hint = 'It maps lexical and semantic to numbers from 0 to 1000000, not both 0.';
  end if;
  if jsonb_typeof(fusion -> 'source') <> 'object' then
    raise exception 'source is %, not an object', jsonb_typeof(fusion -> 'source')
      using errcode = 'RD004', hint = 'It says where the settings come from, like {"set": "golden", "metric": "ndcg@10"}.';
  end if;
  update ragdb.collection x
     set fusion = fusion || pg_catalog.jsonb_build_object(
           'source', coalesce(fusion -> 'source', '{}') || pg_catalog.jsonb_build_object('by', ragdb.caller(), 'at', now()))
   where x.collection_id = c.collection_id;
end
$function$;
comment on function ragdb.set_fusion(text, jsonb) is
  'Keeps weights, rrf_k and candidates of fuse for a collection, where a search says nothing else; null removes them.';

-- The options of a search with the collection's own settings of fuse in the place of those that were not given.
-- {"tuned": false} leaves these out.
create or replace function ragdb.with_fusion(c ragdb.collection, options jsonb) returns jsonb
language plpgsql stable
set search_path from current
as $function$
begin
  if c.fusion is null or options @> '{"tuned": false}' then
    return options;
  end if;
  return options || (
    select coalesce(jsonb_object_agg(f.key, f.value), '{}')
      from jsonb_each(c.fusion) f
     where f.key in ('weights', 'rrf_k', 'candidates') and coalesce(options -> f.key, 'null') = 'null');
end
$function$;
comment on function ragdb.with_fusion(ragdb.collection, jsonb) is
  'Options of a search with the collection''s own weights, rrf_k and candidates where none were given.';
