-- The fuse stage: rrf_fuse over the legs' lists, then, in one snapshot, what may be seen of it now: chunks that are
-- gone or not yet visible fall out, chunks of the same indexed text become one (the others are its aliases).
-- Content comes for the first `content_for` rows. Options: weights, rrf_k (60), content_for (50), model_id, vector, lexemes.
--
-- evidence: the share (0 to 1) of the question's content words that the chunk holds, weighted by idf, a word that
--           stands nowhere counted as if it stood in one chunk: else, in a small collection, it would outweigh all others.
--           A chunk that holds all words of a synonym holds the words of the question that the synonym stands for, which
--           then weigh no more than the synonym's.
-- matched:  the words it holds, its synonyms' too, with their idf. rare: those of them that stand in at most a fifth of
--           the chunks, or in at most ten (in a small collection a share says little).
-- similarity: cosine of chunk and question, where `options.vector` is given.
create or replace function ragdb.fuse(lists jsonb, question text, collection text default 'default', options jsonb default '{}')
returns table (
  rank integer, chunk_id bigint, score double precision, ranks jsonb, aliases bigint[],
  label text, document_id bigint, uri text, title text, heading_path text[], status text,
  context text, content text, start_at integer, end_at integer, page integer, metadata jsonb,
  similarity double precision, evidence double precision, matched jsonb, rare text[], updated_at timestamptz)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  content_for integer;
  m ragdb.embedding_model;
  q vector;
  readable bigint[];                                    -- documents; null: all of the collection
begin
  options := coalesce(options, '{}');
  content_for := ragdb.whole_number(options, 'content_for', 50);
  select * into m from ragdb.embedding_model e where e.model_id = ragdb.chosen_model(c, options);
  if found and jsonb_typeof(options -> 'vector') = 'array' then
    q := ragdb.checked_vector(array(select jsonb_array_elements_text(options -> 'vector')::double precision), m.dims, m.name);
  end if;

  -- ids come from the caller: what a leg would not have shown may not come back here
  if ragdb.read_limits(c.collection_id) is not null then
    readable := ragdb.readable_documents(array(
      select distinct ch.document_id
        from ragdb.rrf_fuse(lists) f
       cross join lateral (select k.document_id from ragdb.chunk k where k.chunk_id = f.chunk_id offset 0) ch));
  end if;

  return query
  with fused as materialized (
    select f.chunk_id, f.score, f.ranks
      from ragdb.rrf_fuse(lists, ragdb.weights_that_count(lists, coalesce(options -> 'weights', '{}')), ragdb.whole_number(options, 'rrf_k', 60)) f),
  -- `offset 0`: one by one through the key. The planner knows neither how many ids come nor whom `readable` leaves, and
  -- joined as a whole the collection may be read instead; text comes below, for the rows that are shown.
  seen as materialized (
    select f.chunk_id, f.score, f.ranks, ch.document_id, ch.text_hash, ch.born_revision
      from fused f
     cross join lateral (select k.document_id, k.text_hash, k.born_revision from ragdb.chunk k where k.chunk_id = f.chunk_id offset 0) ch),
  visible as materialized (
    select s.chunk_id, s.score, s.ranks, s.document_id,
           row_number() over same as copy,
           array_agg(s.chunk_id) over (same rows between unbounded preceding and unbounded following) as copies
      from seen s
     cross join lateral (select x.collection_id, x.ready_revision from ragdb.document x where x.document_id = s.document_id offset 0) d
     where d.collection_id = c.collection_id and s.born_revision <= d.ready_revision and (readable is null or s.document_id = any (readable))
    window same as (partition by s.text_hash order by s.score desc, s.chunk_id)),
  ranked as (
    select v.*, row_number() over (order by v.score desc, v.chunk_id)::integer as r
      from visible v where v.copy = 1),
  word as materialized (
    select w.word, w.idf, w.content, w.source = 'question' as own,
           ln(1 + (greatest(s.n_chunks, w.ndoc, 1) - greatest(w.ndoc, 1) + 0.5) / (greatest(w.ndoc, 1) + 0.5))::double precision as weight,
           w.ndoc <= greatest(10, coalesce(s.n_chunks, 0) / 5) as is_rare, w.lone,
           '''' || replace(replace(w.word, '\', '\\'), '''', '''''') || case when w.lone then ''':*' else '''' end as quoted
      from ragdb.lexical_query(question, collection, options) w
      left join ragdb.lexical_stats s on s.collection_id = c.collection_id),
  synonym as materialized (
    select s.n, s.covers, array_agg(w.word) as words, max(w.weight) as weight,
           coalesce(string_agg(w.quoted, ' & ') filter (where w.content), string_agg(w.quoted, ' & '))::tsquery as query
      from ragdb.question_synonyms(question, c, options) s
      join word w on w.word = any (s.words)
     group by s.n, s.covers),
  -- a word is no rarer than its synonyms
  counted as materialized (
    select w.word, w.idf, w.own, w.is_rare, w.lone, w.quoted,
           least(w.weight, (select min(s.weight) from synonym s where w.word = any (s.covers))) as weight
      from word w where w.content)
  select x.r, x.chunk_id, x.score, x.ranks, array_remove(x.copies, x.chunk_id),
         p.label, x.document_id, d.uri, d.title, coalesce(sec.path, '{}'), d.status,
         ch.context, ch.content, p.start_at, p.end_at, p.page, d.metadata,
         case when q is not null then (select 1 - (e.v <=> q) from ragdb.embedding e where e.chunk_id = x.chunk_id and e.model_id = m.model_id) end,
         coalesce(hit.share, 0), coalesce(hit.matched, '{}'), coalesce(hit.rare, '{}'), d.updated_at
    from ranked x
   cross join lateral (select k.context, k.content, k.lexemes from ragdb.chunk k where k.chunk_id = x.chunk_id offset 0) ch
    join ragdb.document d on d.document_id = x.document_id
    join lateral (select t.* from ragdb.chunk_place t where t.chunk_id = x.chunk_id offset 0) p
      on p.document_id = x.document_id and p.revision = d.ready_revision
    left join ragdb.section sec on sec.section_id = p.section_id
    left join lateral (
      select sum(w.weight) filter (where w.own and (h.holds or w.word = any (y.covers))) / nullif(sum(w.weight) filter (where w.own), 0) as share,
             jsonb_object_agg(w.word, round(w.idf::numeric, 4)) filter (where h.holds) as matched,
             array_agg(w.word order by w.word) filter (where h.holds and w.is_rare) as rare
        from (select coalesce(array_agg(distinct u.covered), '{}') as covers, coalesce(array_agg(distinct u.word), '{}') as words
                from synonym a, unnest(a.covers, a.words) as u(covered, word)
               where ch.lexemes @@ a.query) y,
             counted w,
             lateral (select case when not w.own then w.word = any (y.words)
                                  when w.lone then ch.lexemes @@ w.quoted::tsquery
                                  else w.word = any (tsvector_to_array(ch.lexemes)) end as holds) h) hit on true
   where x.r <= content_for
   order by x.r;
end
$function$;
comment on function ragdb.fuse(jsonb, text, text, jsonb) is
  'Lists of chunk ids to one ranking with text: RRF, visibility checked again, same text once, evidence for the question.';
