-- What the judgements of a set are in a collection as it is now: the chunks that hold the evidence of each.
--   select key, uri, grade, kind, chunk_ids, whole_ids from ragdb.eval_evidence('help', 'help');
-- kind: what was judged, a document, a chunk (by its label) or a quote. chunk_ids: chunks that hold it or a part of it, with where they begin and end;
-- whole_ids: those that hold all of a quote. document_id is null where the document is not there (or not ready);
-- a quote that does not stand in its document has no chunks. Words of a quote may be apart by other blanks.
create or replace function ragdb.eval_evidence(eval_set text, collection text)
returns table (key text, uri text, grade integer, trap boolean, kind text, document_id bigint, status text, chunk_ids bigint[], starts integer[], ends integer[],
               whole_ids bigint[])
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(eval_set);
  c ragdb.collection := ragdb.readable_collection(collection);
begin
  return query
  select q.key, j.uri, j.grade, j.trap, kinds.kind, d.document_id, d.status, coalesce(found.ids, '{}'), coalesce(found.starts, '{}'), coalesce(found.ends, '{}'),
         coalesce(found.whole, '{}')
    from ragdb.eval_question q
    join ragdb.eval_judgement j on j.eval_question_id = q.eval_question_id
   cross join lateral (select case when j.quote is not null then 'quote' when j.label is not null then 'label' else 'document' end as kind) kinds
    left join ragdb.document d on d.collection_id = c.collection_id and d.uri = j.uri and d.ready_revision > 0
    left join lateral (
      select r.content from ragdb.document_revision r
       where kinds.kind = 'quote' and r.document_id = d.document_id and r.revision = d.ready_revision) text on true
   -- once a judgement (offset 0), not once a chunk: a quote is looked for in the whole document
   cross join lateral (select w.first, w.last from ragdb.words_at(text.content, j.quote) w offset 0) place
    left join lateral (
      select array_agg(p.chunk_id order by p.ordinal) as ids, array_agg(p.start_at order by p.ordinal) as starts,
             array_agg(p.end_at order by p.ordinal) as ends,
             array_agg(p.chunk_id order by p.ordinal) filter (where p.start_at <= place.first and p.end_at >= place.last) as whole
        from ragdb.chunk_place p
       where p.document_id = d.document_id and p.revision = d.ready_revision
         and case kinds.kind when 'document' then true
                             when 'label' then p.label = j.label
                             else p.start_at < place.last and p.end_at > place.first end) found on true
   where q.eval_set_id = s.eval_set_id and q.state = 'accepted'
   order by q.key, j.eval_judgement_id;
end
$function$;
comment on function ragdb.eval_evidence(text, text) is 'The judgements of a set with the chunks of a collection that hold what was judged.';

-- Where words stand first in a text, from 0; as they are, else with other blanks between them. Nulls: nowhere.
create or replace function ragdb.words_at(content text, words text, out first integer, out last integer)
language plpgsql immutable
set search_path from current
as $function$
begin
  first := nullif(position(words in content), 0) - 1;
  last := first + length(words);
  -- a longer expression than that is more than PostgreSQL's are made for
  if first is null and length(words) <= 20000 then
    first := nullif(regexp_instr(content, ragdb.blank_insensitive(words)), 0) - 1;
    last := regexp_instr(content, ragdb.blank_insensitive(words), first + 1, 1, 1) - 1;
  end if;
end
$function$;
comment on function ragdb.words_at(text, text) is 'Where words begin and end in a text, whatever blanks are between them; nulls where they do not stand in it.';

-- A text as a regular expression that takes any blanks for its blanks.
create or replace function ragdb.blank_insensitive(words text) returns text
language sql immutable
set search_path from current
as $function$
  select regexp_replace(regexp_replace(btrim(words, E' \t\r\n\u3000'), '([.^$*+?(){}\[\]\\|])', '\\\1', 'g'), '\s+', '\\s+', 'g')
$function$;
comment on function ragdb.blank_insensitive(text) is 'A text as a regular expression in which a blank stands for any run of blanks.';

-- One number for what a collection answers from: documents with their status, metadata and chunks, analyzer and model. The same number, the same
-- results. Reads the documents: about a second for 300,000.
create or replace function ragdb.collection_fingerprint(collection text) returns text
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
begin
  return (
    select md5(concat_ws('|', count(*), sum(pg_catalog.hashtextextended(pg_catalog.concat_ws('|', d.uri, d.status, d.ready_revision, encode(d.content_hash, 'hex'),
                         d.metadata, d.updated_at, r.chunking, d.n_chunks), 0)::numeric),
                         c.active_model_id, c.text_search_config, c.analyzer, c.k1, c.b, c.pivot_length,
                         (select x.refreshed_at from ragdb.lexical_stats x where x.collection_id = c.collection_id)))
      from ragdb.document d
      left join ragdb.document_revision r on r.document_id = d.document_id and r.revision = d.ready_revision
     where d.collection_id = c.collection_id and d.ready_revision > 0);
end
$function$;
comment on function ragdb.collection_fingerprint(text) is 'A hash of everything in a collection that the results of a search hang on.';
