-- What the lexical leg sees of a question: its distinct words with their document frequency and idf.
--   idf = ln(1 + (N - n + 0.5) / (n + 0.5)), N chunks counted, n of them with the word; an unknown word counts as rare.
-- `content` words say what the question is about: not the particles that two-character lexemes with hiragana are.
-- `lone` marks one-character words of scripts without spaces: inside longer runs they are found by prefix.
-- 256 words count: the 192 rarest known ones, then unknown ones, which only stale statistics make matter.
create or replace function ragdb.lexical_query(question text, collection text default 'default')
returns table (word text, ndoc integer, idf double precision, content boolean, lone boolean)
language plpgsql stable
security definer
set search_path from current
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  lexemes tsvector := ragdb.analyze(question, c.text_search_config::regconfig);
  hiragana constant text := '[\u3041-\u309f]';
  unspaced constant text := '^[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+$';
begin
  return query
  with given as (
    select u.lexeme, u.lexeme ~ unspaced as is_unspaced,
           -- the last character of a longer run is indexed, but is no word of the question
           u.lexeme ~ unspaced and length(u.lexeme) = 1 as is_single
      from unnest(lexemes) u),
  words as (
    select g.lexeme, g.is_unspaced, g.is_single
      from given g
     where not g.is_single
        or not exists (select from given o where o.is_unspaced and length(o.lexeme) = 2 and right(o.lexeme, 1) = g.lexeme)),
  counted as (
    select w.*, coalesce(l.ndoc, 0) as n, coalesce(s.n_chunks, 0) as total
      from words w
      left join ragdb.lexeme l on l.collection_id = c.collection_id and l.lexeme = w.lexeme
      left join ragdb.lexical_stats s on s.collection_id = c.collection_id)
  select x.lexeme, x.n,
         ln(1 + (greatest(x.total, x.n) - x.n + 0.5) / (x.n + 0.5))::double precision,
         not (x.is_unspaced and x.lexeme ~ hiragana),
         x.is_single
    from (select y.*, row_number() over (partition by y.n > 0 order by y.n, y.lexeme) as place from counted y) x
   where x.n = 0 or x.place <= 192
   order by x.n = 0, x.n, x.lexeme
   limit 256;
end
$function$;
comment on function ragdb.lexical_query(text, text) is
  'What the lexical leg sees of a question: its words, in how many chunks each stands, idf, and whether it is a content word.';
