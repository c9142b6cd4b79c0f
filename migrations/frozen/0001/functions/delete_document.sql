-- Deletes a document with its chunks, vectors and job, and what stored runs say of it: citations lose their quote and
-- headings, answers that were written from it are removed, and so is what those runs noted of texts (queries made from what
-- was said before, errors of models). Words of the statistics that stood in no other document go too. What a person typed
-- stays: the question, its `where`, feedback, a drafted question that was accepted. Returns a receipt with counts; {"document": 0} where there is none.
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
  notes bigint;
  claims bigint;
  words bigint;
  judged bigint;
begin
  select d.document_id into id from ragdb.document d
   where d.collection_id = c.collection_id and d.uri = delete_document.uri for update;
  if not found then
    return pg_catalog.jsonb_build_object('document', 0);
  end if;
  select pg_catalog.jsonb_build_object('document', 1,
           'revisions', (select count(*) from ragdb.document_revision r where r.document_id = id),
           'sections', (select count(*) from ragdb.section s where s.document_id = id),
           'chunks', (select count(*) from ragdb.chunk k where k.document_id = id),
           'embeddings', (select count(*) from ragdb.chunk k join ragdb.embedding e using (chunk_id) where k.document_id = id),
           'jobs', (select count(*) from ragdb.job j where j.document_id = id)) into receipt;

  -- runs before their citations, as ragdb.prune() takes them
  update ragdb.run r set answer = null where r.document_ids @> array[id] and r.answer is not null;
  get diagnostics answers = row_count;
  update ragdb.run r
     set error = case when r.error is not null then 'removed with a document' end, usage = r.usage - 'embedder_failed'
   where r.document_ids @> array[id] and (r.error is not null or r.usage ? 'embedder_failed');
  -- these stages note counts and the path taken; the others, and searches for other words than the person's, note texts
  update ragdb.run_stage s
     set query = null, note = case when s.note <> '' then 'removed with a document' else '' end
    from ragdb.run r
   where r.document_ids @> array[id] and s.run_id = r.run_id
     and (s.query is not null
          or s.note not in ('', 'removed with a document') and s.stage not in ('retrieve', 'fuse', 'freshen', 'expand', 'pack'));
  get diagnostics notes = row_count;
  delete from ragdb.claim q using ragdb.run r where r.document_ids @> array[id] and q.run_id = r.run_id;
  get diagnostics claims = row_count;
  update ragdb.citation q set quote = null, heading_path = '{}', label = q.uri, purged = true where q.document_id = id and not q.purged;
  get diagnostics quotes = row_count;

  -- what evaluations keep of its words: answers and verdicts made from it, words of it that were judged, drafts made from it
  update ragdb.eval_result e set answer = null, error = case when e.error is not null then 'removed with a document' end
   where e.document_ids @> array[id] and (e.answer is not null or e.error is not null);
  get diagnostics judged = row_count;
  answers := answers + judged;
  -- results before their verdicts, as ragdb.record_eval_result() takes them
  update ragdb.eval_verdict v set raw = null, broken = case when v.broken is not null then 'removed with a document' end
    from ragdb.eval_result e
   where e.document_ids @> array[id] and v.eval_run_id = e.eval_run_id and v.eval_question_id = e.eval_question_id
     and num_nonnulls(v.raw, v.broken) > 0;
  -- of a draft that a person accepted the question is theirs by now, the answer still the model's
  delete from ragdb.eval_question q where q.drafted_from = id and q.state <> 'accepted';
  update ragdb.eval_question q set drafted_from = null, reference = null where q.drafted_from = id;
  -- without its words a judgement is about the document as a whole: one of each question
  delete from ragdb.eval_judgement j
   using ragdb.eval_question q, ragdb.eval_set s, ragdb.eval_judgement better
   where s.collection = c.name and q.eval_set_id = s.eval_set_id and j.eval_question_id = q.eval_question_id
     and better.eval_question_id = q.eval_question_id and md5(j.uri) = md5(delete_document.uri) and md5(better.uri) = md5(delete_document.uri)
     and (better.grade, -better.eval_judgement_id) > (j.grade, -j.eval_judgement_id);
  update ragdb.eval_judgement j set quote = null, label = null
    from ragdb.eval_question q, ragdb.eval_set s
   where s.collection = c.name and q.eval_set_id = s.eval_set_id and j.eval_question_id = q.eval_question_id
     and md5(j.uri) = md5(delete_document.uri) and num_nonnulls(j.quote, j.label) > 0;
  get diagnostics judged = row_count;
  quotes := quotes + judged;

  -- The rare ones among its words: whether another chunk of the collection has them is asked of the index. A common word is no
  -- trace of this document. Rows that a count of all words has in hand stay for the next count.
  with own as (
    select w.lexeme, count(*) as n
      from ragdb.chunk k cross join lateral unnest(tsvector_to_array(k.lexemes)) as w(lexeme)
     where k.document_id = id
     group by w.lexeme),
  only_here as (
    select l.lexeme
      from own o join ragdb.lexeme l on l.collection_id = c.collection_id and l.lexeme = o.lexeme and l.ndoc <= o.n + 100
     where not exists (
       select from ragdb.chunk k join ragdb.document d using (document_id)
        where k.lexemes @@ array_to_tsvector(array[l.lexeme])::text::tsquery and k.document_id <> id and d.collection_id = c.collection_id)
     order by l.lexeme
       for update of l skip locked)
  delete from ragdb.lexeme l using only_here o where l.collection_id = c.collection_id and l.lexeme = o.lexeme;
  get diagnostics words = row_count;

  delete from ragdb.document d where d.document_id = id;
  return receipt || pg_catalog.jsonb_build_object(
    'quotes_blanked', quotes, 'answers_blanked', answers, 'claims', claims, 'notes_blanked', notes, 'words', words);
end
$function$;
comment on function ragdb.delete_document(text, text) is
  'Deletes a document, its chunks, vectors and job, and what stored runs quote and note of it; returns a receipt with counts.';
