-- The semantic leg: nearest chunks by cosine, at most `candidates`, best first, `where` before the limit.
-- Few matching chunks are compared one by one; many go through the model's HNSW index, and where that gives fewer
-- than asked for (an iterative scan stops early), the exact way runs instead: k rows whenever k rows match.
create or replace function ragdb.semantic_leg(
  query_vector double precision[], collection text default 'default', candidates integer default 50, "where" jsonb default '{}', options jsonb default '{}',
  out chunk_ids bigint[], out scores double precision[], out path text, out matching bigint, out note text)
language plpgsql stable
security definer
set search_path from current
set jit = off
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  m ragdb.embedding_model;
  filter record;
  q vector;
  exact_limit integer := coalesce((options ->> 'exact_limit')::integer, c.exact_limit);
  saved text[];
  aggregate constant text := 'select coalesce(array_agg(x.chunk_id order by x.score desc, x.chunk_id), ''{}''),
                                     coalesce(array_agg(x.score order by x.score desc, x.chunk_id), ''{}'') from (%s) x';
begin
  filter := ragdb.where_clause("where");
  select * into m from ragdb.embedding_model e where e.model_id = coalesce((options ->> 'model_id')::bigint, c.active_model_id);
  chunk_ids := '{}';
  scores := '{}';
  if query_vector is null or not found then
    path := 'empty';
    note := case when query_vector is null then 'no vector of the question' else 'the collection has no embedding model' end;
    return;
  end if;
  q := ragdb.checked_vector(query_vector, m.dims, m.name);

  matching := ragdb.matching_chunks(c.collection_id, filter.condition, filter.vals, exact_limit);
  path := case when matching > exact_limit and ragdb.hnsw_is_valid(m.model_id) then 'hnsw' else 'exact' end;
  note := case when matching > exact_limit and path = 'exact' then 'no HNSW index for this model: every matching chunk is compared' else '' end;

  if path = 'hnsw' then
    -- Saved and put back by hand: a SET clause needs rights that a plain owner lacks, and a dump of it does not restore.
    saved := array[current_setting('hnsw.ef_search'), current_setting('hnsw.iterative_scan'), current_setting('enable_sort'), current_setting('enable_seqscan')];
    perform set_config('hnsw.ef_search', least(1000, greatest(100, candidates * 2))::text, true),
            set_config('hnsw.iterative_scan', 'relaxed_order', true),
            set_config('enable_sort', 'off', true),
            set_config('enable_seqscan', 'off', true);
    execute format(aggregate, ragdb.semantic_statement('hnsw', filter.condition, m.model_id, m.dims))
       into chunk_ids, scores using c.collection_id, filter.vals, q, candidates;
    perform set_config('hnsw.ef_search', saved[1], true), set_config('hnsw.iterative_scan', saved[2], true),
            set_config('enable_sort', saved[3], true), set_config('enable_seqscan', saved[4], true);
    if cardinality(chunk_ids) >= candidates then
      return;
    end if;
    path := 'exact';
    note := format('HNSW gave %s of %s, so every matching chunk was compared', cardinality(chunk_ids), candidates);
  end if;

  execute format(aggregate, ragdb.semantic_statement('exact', filter.condition, m.model_id, m.dims))
     into chunk_ids, scores using c.collection_id, filter.vals, q, candidates;
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
as $function$
  select u.rank::integer, u.chunk_id, u.score
    from ragdb.semantic_leg(query_vector, collection, candidates, "where", options) l,
         unnest(l.chunk_ids, l.scores) with ordinality as u(chunk_id, score, rank)
   order by u.rank
$function$;
comment on function ragdb.retrieve_semantic(double precision[], text, integer, jsonb, jsonb) is
  'The semantic leg as rows: rank, chunk_id, cosine.';
