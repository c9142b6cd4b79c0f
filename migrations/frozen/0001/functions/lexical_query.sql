-- What the lexical leg sees of a question: its distinct words with their document frequency and idf.
--   idf = ln(1 + (N - n + 0.5) / (n + 0.5)), N chunks counted, n of them with the word; an unknown word counts as rare.
-- `content` and `lone`: see ragdb.question_words(). `source` is "question", or the synonym that brought the word. The
-- leg counts idf times `weight`: 1 for the question's own words, a half for those of them that are no content words
-- (particles; a whole, and they outrank what is asked about: docs/benchmarks.md); those of a synonym together count at most as much as
-- the words that it stands for, times synonym.weight, or a long synonym would outweigh the question.
-- In a collection with an external analyzer the words come in options: {"lexemes": [...]}.
-- 256 words count: the 192 rarest known ones, the question's own first, then unknown ones, which only stale statistics
-- make matter.
create or replace function ragdb.lexical_query(question text, collection text default 'default', options jsonb default '{}')
returns table (word text, ndoc integer, idf double precision, content boolean, lone boolean, source text, weight double precision)
language plpgsql stable rows 20
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  lexemes tsvector := ragdb.question_lexemes(question, c, options);
  total bigint := coalesce((select s.n_chunks from ragdb.lexical_stats s where s.collection_id = c.collection_id), 0);
begin
  return query
  with own as materialized (
    select w.word, w.content, w.lone from ragdb.question_words(lexemes, c.analyzer) w),
  added as (
    select w.word, w.content, w.lone, s.n, s.other, s.weight, s.covers
      from ragdb.question_synonyms(question, c, options) s, ragdb.question_words(array_to_tsvector(s.words), c.analyzer) w
     where w.word not in (select o.word from own o)),
  counted as materialized (
    select w.*, coalesce(l.ndoc, 0) as ndoc,
           ln(1 + (greatest(total, coalesce(l.ndoc, 0)) - coalesce(l.ndoc, 0) + 0.5) / (coalesce(l.ndoc, 0) + 0.5))::double precision as idf
      from (select o.*, null::bigint as n, 'question' as other, (case when o.content then 1 else 0.5 end)::double precision as weight, null::text[] as covers from own o
            union all select a.* from added a) w
      -- word by word through the key: joined as a whole, the collection's vocabulary may be read instead
      left join lateral (select x.ndoc from ragdb.lexeme x where x.collection_id = c.collection_id and x.lexeme = w.word limit 1) l on true),
  share as (
    select k.n, coalesce(least(1, (select sum(o.idf) from counted o where o.n is null and o.word = any (k.covers)) / sum(k.idf)), 1) as share
      from counted k where k.n is not null group by k.n, k.covers),
  words as (
    select k.word, k.content, k.lone, k.other, k.weight, k.ndoc, k.idf from counted k where k.n is null
    union all
    -- a word of two synonyms counts once
    select x.* from (
      select distinct on (k.word) k.word, k.content, k.lone, k.other, k.weight * s.share as weight, k.ndoc, k.idf
        from counted k join share s using (n)
       order by k.word, k.weight * s.share desc, k.n) x)
  select x.word, x.ndoc, x.idf, x.content, x.lone, x.other, x.weight
    from (select w.*, row_number() over (partition by w.ndoc > 0 order by w.other <> 'question', w.ndoc, w.word) as place from words w) x
   where x.ndoc = 0 or x.place <= 192
   order by x.ndoc = 0, x.ndoc, x.word
   limit 256;
end
$function$;
comment on function ragdb.lexical_query(text, text, jsonb) is
  'What the lexical leg sees of a question: its words and those of its synonyms, in how many chunks each stands, idf, and whether it is a content word.';
