-- The statement of the lexical leg, for the search and for ragdb.search_plan() alike.
-- Parameters: $1 collection_id, $2 values of the condition, $3 the question as sparsevec of idf, $4 limit, $5 tsquery,
-- $6 the number of matching documents, where it is known: it changes no row, and saves the planner from reading the
-- whole table for a filter that it takes for a wide one.
--   exact:  every matching chunk is scored.
--   gin:    chunks that hold one of the rarest words are scored, with all words; from the best down each looks up its
--           document, until enough match: most are never looked up.
--           `is true` keeps a list or a live filter a set that is read once: a join would read it for every candidate.
--   prefix: one-character words only; a word inside a run is found by the lexemes that begin with it.
-- plpgsql: a search calls it each time, and this language keeps what it has parsed.
create or replace function ragdb.lexical_statement(path text, condition text) returns text
language plpgsql immutable
set search_path from current
as $function$
begin
  return case path
    when 'exact' then pg_catalog.format($sql$
      select x.chunk_id, x.score
        from (select c.chunk_id, -(c.lexical_weights <#> $3) as score
                from (select d.document_id, d.ready_revision
                        from ragdb.document d
                       where d.collection_id = $1 and d.n_chunks > 0 and %s
                       limit $6) d
                join ragdb.chunk c on c.document_id = d.document_id and c.born_revision <= d.ready_revision
              offset 0) x
       where x.score > 0
       order by x.score desc, x.chunk_id
       limit $4$sql$, condition)
    when 'gin' then pg_catalog.format($sql$
      select c.chunk_id, c.score
        from (select k.chunk_id, k.document_id, k.born_revision, -(k.lexical_weights <#> $3) as score
                from ragdb.chunk k
               where k.lexemes @@ $5
               order by score desc, k.chunk_id
              offset 0) c
       where (select true
                from ragdb.document d
               where d.document_id = c.document_id and c.born_revision <= d.ready_revision and d.collection_id = $1 and (%s) is true)
       order by c.score desc, c.chunk_id
       limit $4$sql$, condition)
    when 'prefix' then pg_catalog.format($sql$
      select c.chunk_id, ts_rank(c.lexemes, $5, 1)::double precision as score
        from ragdb.chunk c
        join ragdb.document d on d.document_id = c.document_id and c.born_revision <= d.ready_revision
       where c.lexemes @@ $5 and d.collection_id = $1 and %s
       order by score desc, c.chunk_id
       limit $4$sql$, condition)
  end;
end
$function$;
comment on function ragdb.lexical_statement(text, text) is 'The statement that the lexical leg runs; path is exact, gin or prefix.';
