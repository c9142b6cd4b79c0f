-- The statement of the lexical leg, for the search and for ragdb.search_plan() alike.
-- Parameters: $1 collection_id, $2 values of the condition, $3 the question as sparsevec of idf, $4 limit, $5 tsquery.
--   exact:  every matching chunk is scored.
--   gin:    chunks that hold one of the rarest words are scored, with all words.
--   prefix: one-character words only; a word inside a run is found by the lexemes that begin with it.
create or replace function ragdb.lexical_statement(path text, condition text) returns text
language sql immutable
set search_path from current
as $function$
  select case path
    when 'exact' then format($sql$
      select c.chunk_id, -(c.lexical_weights <#> $3) as score
        from ragdb.document d
        join ragdb.chunk c on c.document_id = d.document_id and c.born_revision <= d.ready_revision
       where d.collection_id = $1 and %s
         and c.lexical_weights <#> $3 < 0
       order by score desc, c.chunk_id
       limit $4$sql$, condition)
    when 'gin' then format($sql$
      with candidate as materialized (
        select c.chunk_id, c.document_id, c.born_revision, c.lexical_weights
          from ragdb.chunk c
         where c.lexemes @@ $5)
      select c.chunk_id, -(c.lexical_weights <#> $3) as score
        from candidate c
        join ragdb.document d on d.document_id = c.document_id and c.born_revision <= d.ready_revision
       where d.collection_id = $1 and %s
       order by score desc, c.chunk_id
       limit $4$sql$, condition)
    when 'prefix' then format($sql$
      select c.chunk_id, ts_rank(c.lexemes, $5, 1)::double precision as score
        from ragdb.chunk c
        join ragdb.document d on d.document_id = c.document_id and c.born_revision <= d.ready_revision
       where c.lexemes @@ $5 and d.collection_id = $1 and %s
       order by score desc, c.chunk_id
       limit $4$sql$, condition)
  end
$function$;
comment on function ragdb.lexical_statement(text, text) is 'The statement that the lexical leg runs; path is exact, gin or prefix.';
