-- The statement of the semantic leg, for the search and for ragdb.search_plan() alike. Model and dimension are
-- literals, or the partial HNSW index would not match. Parameters: $1 collection_id, $2 values of the condition,
-- $3 the question's vector, $4 limit, $5 the number of matching documents, where it is known: it changes no row, and
-- saves the planner from reading the whole table for a filter that it takes for a wide one.
--   exact: every matching chunk is compared; the raw vector cannot match the halfvec index.
--   hnsw:  the index gives the nearest in about the right order, the exact distances sort them. Each vector looks up
--          its own document: of a join the planner, misled about how many match, may compare every pair. `is true` keeps
--          a list or a live filter a set that is read once, not once a candidate.
-- plpgsql: a search calls it each time, and this language keeps what it has parsed.
create or replace function ragdb.semantic_statement(path text, condition text, model_id bigint, dims integer) returns text
language plpgsql immutable
set search_path from current
as $function$
begin
  return case path
    when 'exact' then pg_catalog.format($sql$
      select e.chunk_id, 1 - (e.v <=> $3) as score
        from (select d.document_id, d.ready_revision
                from ragdb.document d
               where d.collection_id = $1 and d.n_chunks > 0 and %1$s
               limit $5) d
        join ragdb.chunk c on c.document_id = d.document_id and c.born_revision <= d.ready_revision
        join ragdb.embedding e on e.chunk_id = c.chunk_id and e.model_id = %2$s
       order by e.v <=> $3, e.chunk_id
       limit $4$sql$, condition, model_id)
    when 'hnsw' then pg_catalog.format($sql$
      select n.chunk_id, n.score
        from (select e.chunk_id, 1 - (e.v <=> $3) as score
                from ragdb.embedding e
               where e.model_id = %2$s
                 and (select true
                        from ragdb.chunk c
                        join ragdb.document d on d.document_id = c.document_id and c.born_revision <= d.ready_revision
                       where c.chunk_id = e.chunk_id and d.collection_id = $1 and (%1$s) is true)
               order by e.v::halfvec(%3$s) <=> $3::halfvec(%3$s)
               limit $4) n
       order by n.score desc, n.chunk_id$sql$, condition, model_id, dims)
  end;
end
$function$;
comment on function ragdb.semantic_statement(text, text, bigint, integer) is 'The statement that the semantic leg runs; path is exact or hnsw.';
