-- The statement of the semantic leg, for the search and for ragdb.search_plan() alike. Model and dimension are
-- literals, or the partial HNSW index would not match. Parameters: $1 collection_id, $2 values of the condition,
-- $3 the question's vector, $4 limit.
--   exact: every matching chunk is compared; the raw vector cannot match the halfvec index.
--   hnsw:  the index gives the nearest in about the right order, the exact distances sort them.
create or replace function ragdb.semantic_statement(path text, condition text, model_id bigint, dims integer) returns text
language sql immutable
set search_path from current
as $function$
  select case path
    when 'exact' then format($sql$
      select e.chunk_id, 1 - (e.v <=> $3) as score
        from ragdb.document d
        join ragdb.chunk c on c.document_id = d.document_id and c.born_revision <= d.ready_revision
        join ragdb.embedding e on e.chunk_id = c.chunk_id and e.model_id = %2$s
       where d.collection_id = $1 and %1$s
       order by e.v <=> $3, e.chunk_id
       limit $4$sql$, condition, model_id)
    when 'hnsw' then format($sql$
      with near as materialized (
        select e.chunk_id, e.v
          from ragdb.embedding e
          join ragdb.chunk c on c.chunk_id = e.chunk_id
          join ragdb.document d on d.document_id = c.document_id and c.born_revision <= d.ready_revision
         where e.model_id = %2$s and d.collection_id = $1 and %1$s
         order by e.v::halfvec(%3$s) <=> $3::halfvec(%3$s)
         limit $4)
      select n.chunk_id, 1 - (n.v <=> $3) as score
        from near n
       order by n.v <=> $3, n.chunk_id$sql$, condition, model_id, dims)
  end
$function$;
comment on function ragdb.semantic_statement(text, text, bigint, integer) is 'The statement that the semantic leg runs; path is exact or hnsw.';
