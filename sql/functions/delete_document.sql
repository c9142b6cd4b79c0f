-- Deletes a document with its chunks, vectors and job, and blanks what stored runs quote of it: citations lose their
-- quote, answers that were written from it are removed. Returns a receipt with counts; {"document": 0} where there is none.
create or replace function ragdb.delete_document(collection text, uri text) returns jsonb
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  id bigint;
  receipt jsonb;
  quotes bigint;
  answers bigint;
begin
  select d.document_id into id from ragdb.document d
   where d.collection_id = c.collection_id and d.uri = delete_document.uri for update;
  if not found then
    return pg_catalog.jsonb_build_object('document', 0);
  end if;
  select pg_catalog.jsonb_build_object('document', 1,
           'chunks', (select count(*) from ragdb.chunk k where k.document_id = id),
           'embeddings', (select count(*) from ragdb.chunk k join ragdb.embedding e using (chunk_id) where k.document_id = id),
           'jobs', (select count(*) from ragdb.job j where j.document_id = id)) into receipt;

  -- runs before their citations, as ragdb.prune() takes them
  update ragdb.run r set answer = null where r.document_ids @> array[id] and r.answer is not null;
  get diagnostics answers = row_count;
  delete from ragdb.claim q using ragdb.run r where r.document_ids @> array[id] and q.run_id = r.run_id;
  update ragdb.citation q set quote = null, purged = true where q.document_id = id and not q.purged;
  get diagnostics quotes = row_count;
  delete from ragdb.document d where d.document_id = id;
  return receipt || pg_catalog.jsonb_build_object('quotes_blanked', quotes, 'answers_blanked', answers);
end
$function$;
comment on function ragdb.delete_document(text, text) is
  'Deletes a document, its chunks, vectors and job, and its quotes in stored runs; returns a receipt with counts.';
