-- The semantic leg: nearest chunks by cosine, at most `candidates`, best first, `where` before the limit.
-- Few matching chunks are compared one by one; many go through the model's HNSW index, and where that gives fewer
-- than asked for (an iterative scan stops early), the exact way runs instead: k rows whenever k rows match.
create or replace function ragdb.semantic_leg(
  query_vector double precision[], collection text default 'default', candidates integer default 50, "where" jsonb default '{}', options jsonb default '{}',
  out chunk_ids bigint[], out scores double precision[], out path text, out matching bigint, out note text)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
set jit = off
as $function$
declare
  p record;
  before text[];
begin
  p := ragdb.prepared_semantic(query_vector, collection, candidates, "where", options);
  path := p.path;
  matching := p.matching;
  note := p.note;
  chunk_ids := '{}';
  scores := '{}';
  if p.statement is null then
    return;
  end if;
  before := ragdb.swap_settings(p.settings);
  execute p.statement into chunk_ids, scores using p.collection_id, p.vals, p.query, candidates, p.documents;
  perform ragdb.swap_settings(before);
  if path = 'hnsw' and cardinality(chunk_ids) < p.expected then
    path := 'exact';
    note := pg_catalog.format('HNSW gave %s of %s, so every matching chunk was compared', cardinality(chunk_ids), p.expected);
    execute p.exact into chunk_ids, scores using p.collection_id, p.vals, p.query, candidates, p.documents;
  end if;
exception when query_canceled or others then
  note := ragdb.filter_error((select x.collection_id from ragdb.collection x where x.name = collection), "where", sqlstate, sqlerrm);
  if note is null then
    raise;
  end if;
  raise exception '%', note using errcode = ragdb.filter_error_state(sqlstate);
end
$function$;
comment on function ragdb.semantic_leg(double precision[], text, integer, jsonb, jsonb) is
  'The semantic leg as one row: chunk ids and cosines, best first, the path taken, how many chunks match the filter.';

create or replace function ragdb.retrieve_semantic(
  query_vector double precision[], collection text default 'default', candidates integer default 50, "where" jsonb default '{}', options jsonb default '{}')
returns table (rank integer, chunk_id bigint, score double precision)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select u.rank::integer, u.chunk_id, u.score
    from ragdb.semantic_leg(query_vector, collection, candidates, "where", options) l,
         unnest(l.chunk_ids, l.scores) with ordinality as u(chunk_id, score, rank)
   order by u.rank
$function$;
comment on function ragdb.retrieve_semantic(double precision[], text, integer, jsonb, jsonb) is
  'The semantic leg as rows: rank, chunk_id, cosine.';
