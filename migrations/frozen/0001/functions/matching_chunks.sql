-- How many chunks match a condition, counted no further than `at_most`; decides between exact scoring and an index.
-- Counted on document.n_chunks, under a millisecond; only a collection of very many tiny documents is counted by chunk.
-- `documents`: at most so many documents hold them, null where that is not known; the planner is told so by a LIMIT.
create or replace function ragdb.matching_chunks(
  collection_id bigint, condition text, vals jsonb, at_most integer, out chunks bigint, out documents bigint)
language plpgsql stable
set search_path from current
as $function$
begin
  execute pg_catalog.format('select count(*), coalesce(sum(x.n_chunks), 0)
                    from (select d.n_chunks from ragdb.document d where d.collection_id = $1 and d.n_chunks > 0 and %s limit 2000) x', condition)
     into documents, chunks using collection_id, vals;
  if chunks <= at_most and documents = 2000 then
    execute pg_catalog.format('select count(*) from (select from ragdb.document d join ragdb.chunk c using (document_id)
                     where d.collection_id = $1 and d.n_chunks > 0 and %s limit $3) x', condition)
       into chunks using collection_id, vals, at_most + 1;
    documents := chunks;                                -- each has at least one
  end if;
  if chunks > at_most then
    chunks := at_most + 1;
    documents := null;
  end if;
end
$function$;
comment on function ragdb.matching_chunks(bigint, text, jsonb, integer) is
  'How many chunks match a condition of ragdb.where_clause(), counted no further than at_most, and in at most how many documents.';

-- About which share of a collection's chunks matches a condition, by a sample of 64 pages of documents, always the
-- same ones, so that a search gives the same answer twice. 1 where the sample holds no document of the collection.
create or replace function ragdb.matching_share(collection_id bigint, condition text, vals jsonb) returns double precision
language plpgsql stable
set search_path from current
as $function$
declare
  pages bigint := greatest(1, pg_relation_size('ragdb.document') / current_setting('block_size')::bigint);
  share double precision;
begin
  execute pg_catalog.format('select coalesce(sum(d.n_chunks) filter (where %s), 0)::double precision / nullif(sum(d.n_chunks), 0)
                    from ragdb.document d tablesample system ($3) repeatable (0)
                   where d.collection_id = $1', condition)
     into share using collection_id, vals, least(100, 6400.0 / pages);
  return coalesce(share, 1);
end
$function$;
comment on function ragdb.matching_share(bigint, text, jsonb) is
  'About which share of a collection''s chunks matches a condition of ragdb.where_clause(), 0 to 1, by a sample.';
