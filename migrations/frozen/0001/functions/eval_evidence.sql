-- What the judgements of a set are in a collection as it is now: the chunks that hold the evidence of each.
--   select key, uri, grade, kind, chunk_ids, whole_ids from ragdb.eval_evidence('help', 'help');
-- kind: what was judged, a document, a chunk (by its label) or a quote. chunk_ids: chunks that hold it or a part of it, with where they begin and end;
-- whole_ids: those that hold all of a quote. document_id is null where the document is not there (or not ready);
-- a quote that does not stand in its document has no chunks. Words of a quote may be apart by other blanks. Where a quote
-- stands in its document several times, the chunks of each place hold it.
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
   cross join lateral (
      select case when btrim(j.quote, E' \t\r\n\u3000') <> '' then 'quote' when j.label <> '' then 'label' else 'document' end as kind) kinds
    left join ragdb.document d on d.collection_id = c.collection_id and d.uri = j.uri and d.ready_revision > 0
    left join lateral (
      select r.content from ragdb.document_revision r
       where kinds.kind = 'quote' and r.document_id = d.document_id and r.revision = d.ready_revision) text on true
   cross join lateral (
      select array_agg(o.first order by o.first) as firsts, array_agg(o.last order by o.first) as lasts
        from ragdb.places_of(text.content, case when kinds.kind = 'quote' then j.quote end) o offset 0) places
    left join lateral (
      select array_agg(x.chunk_id order by x.ordinal) as ids, array_agg(x.start_at order by x.ordinal) as starts,
             array_agg(x.end_at order by x.ordinal) as ends, array_agg(x.chunk_id order by x.ordinal) filter (where x.whole) as whole
        from (select p.chunk_id, p.ordinal, p.start_at, p.end_at,
                     exists (select from unnest(places.firsts, places.lasts) as o(first, last)
                              where p.start_at < o.last and p.end_at > o.first) as part,
                     exists (select from unnest(places.firsts, places.lasts) as o(first, last)
                              where p.start_at <= o.first and p.end_at >= o.last) as whole
                from ragdb.chunk_place p
               where p.document_id = d.document_id and p.revision = d.ready_revision
                 and (kinds.kind <> 'label' or p.label = j.label)) x
       where kinds.kind <> 'quote' or x.part) found on true
   where q.eval_set_id = s.eval_set_id and q.state = 'accepted'
   order by q.key, j.eval_judgement_id;
end
$function$;
comment on function ragdb.eval_evidence(text, text) is 'The judgements of a set with the chunks of a collection that hold what was judged.';

-- Where words stand in a text, the first 100 places: from 0, the end not included. By other blanks where not as they are.
create or replace function ragdb.places_of(content text, words text) returns table (first integer, last integer)
language sql immutable strict rows 1
set search_path from current
as $function$
  with around as materialized (select string_to_array(content, words) as parts)
  select (sum(length(t.part)) over (order by t.n) + (t.n - 1) * length(words))::integer,
         (sum(length(t.part)) over (order by t.n) + t.n * length(words))::integer
    from around cross join lateral unnest(around.parts) with ordinality as t(part, n)
   where t.n <= least(100, cardinality(around.parts) - 1)
  union all
  select regexp_instr(content, p.pattern, 1, i) - 1, regexp_instr(content, p.pattern, 1, i, 1) - 1
    from (select ragdb.blank_insensitive(words) as pattern from around where cardinality(around.parts) = 1) p
   cross join lateral generate_series(1, least(100, regexp_count(content, p.pattern))) i
   -- a longer expression than that is more than PostgreSQL's are made for
   where length(words) <= 20000
$function$;
comment on function ragdb.places_of(text, text) is 'Where words stand in a text, whatever blanks are between them; the first 100 places.';

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
