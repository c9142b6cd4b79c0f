-- How many chunks match a condition, counted no further than `at_most`; decides between exact scoring and an index.
-- Counted on document.n_chunks, under a millisecond; only a collection of very many tiny documents is counted by chunk.
create or replace function ragdb.matching_chunks(collection_id bigint, condition text, vals jsonb, at_most integer) returns bigint
language plpgsql stable
set search_path from current
as $function$
declare
  documents bigint;
  chunks bigint;
begin
  execute format('select count(*), coalesce(sum(x.n_chunks), 0)
                    from (select d.n_chunks from ragdb.document d where d.collection_id = $1 and %s limit 2000) x', condition)
     into documents, chunks using collection_id, vals;
  if documents < 2000 or chunks > at_most then
    return least(chunks, at_most + 1);
  end if;
  execute format('select count(*) from (select from ragdb.document d join ragdb.chunk c using (document_id)
                   where d.collection_id = $1 and %s limit $3) x', condition)
     into chunks using collection_id, vals, at_most + 1;
  return chunks;
end
$function$;
comment on function ragdb.matching_chunks(bigint, text, jsonb, integer) is
  'How many chunks match a condition of ragdb.where_clause(), counted no further than at_most.';
