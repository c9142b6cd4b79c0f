-- Synonyms of a question: for each term of ragdb.synonym that stands in it, the terms that mean the same.
--   insert into ragdb.synonym (terms) values ('{WFH,リモートワーク,テレワーク,在宅勤務}'), ('{OOM,out of memory}');
-- A term stands in a question when its words do, one after the other: folded, stemmed, whole words where a script has
-- spaces (no OOM in room), any part of a run where it has none. The first 10,000 characters are looked at, and
-- 200 synonyms are added to a question.

-- A text as its words in order with one space around each, stop words kept: what terms are looked up in and by.
create or replace function ragdb.term_form(body text, config regconfig) returns text
language plpgsql immutable parallel safe strict
set search_path from current
set client_min_messages = error
as $function$
declare
  unspaced constant text := ragdb.unspaced_scripts();
  folded text := lower(normalize(left(body, 10000), nfkc));
begin
  return (
    select ' ' || string_agg(coalesce(nullif(array_to_string(tsvector_to_array(to_tsvector(config, t.word)), ' '), ''), t.word), ' ' order by t.n) || ' '
      from regexp_split_to_table(regexp_replace(folded, unspaced, ' \& ', 'g'), '(?:[[:space:]'']|' || ragdb.between_words() || ')+') with ordinality as t(word, n)
     where t.word <> '');
end
$function$;
comment on function ragdb.term_form(text, regconfig) is 'A text as its words in order, folded and stemmed, one space around each; null where it has none. For synonyms.';

-- The lexemes of a term. Where the analyzer is external, terms are written in its words, with spaces between them.
create or replace function ragdb.term_lexemes(term text, c ragdb.collection) returns tsvector
language sql stable
set search_path from current
as $function$
  select case when c.analyzer = 'external' then ragdb.given_lexemes(to_jsonb(regexp_split_to_array(btrim(term), '\s+')))
              else ragdb.analyze(term, c.text_search_config::regconfig) end
$function$;
comment on function ragdb.term_lexemes(text, ragdb.collection) is 'The lexemes of a synonym''s term in a collection.';

-- The words that count in a question, or in a synonym: all lexemes but the last character of a longer run.
-- `content` words say what it is about: not the particles that two-character lexemes with hiragana are.
-- `lone` marks one-character words of scripts without spaces: inside longer runs they are found by prefix.
create or replace function ragdb.question_words(lexemes tsvector, analyzer text default 'builtin')
returns table (word text, content boolean, lone boolean)
language sql immutable parallel safe
set search_path from current
as $function$
  with given as (
    select u.lexeme,
           analyzer = 'builtin' and u.lexeme ~ '^[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+$' as is_unspaced
      from unnest(lexemes) u)
  select g.lexeme, not (g.is_unspaced and g.lexeme ~ '[\u3041-\u309f]'), g.is_unspaced and length(g.lexeme) = 1
    from given g
   where not (g.is_unspaced and length(g.lexeme) = 1)
      or not exists (select from given o where o.is_unspaced and length(o.lexeme) = 2 and right(o.lexeme, 1) = g.lexeme)
$function$;
comment on function ragdb.question_words(tsvector, text) is 'The words that count in a question, whether each is a content word, and whether it stands alone as one character.';

-- One row for each term of the question and each other term of its row: `covers` are the words of the question that
-- the other term stands for, `words` those that are searched for in their place.
create or replace function ragdb.question_synonyms(question text, c ragdb.collection, options jsonb default '{}')
returns table (n bigint, term text, other text, weight double precision, covers text[], words text[])
language plpgsql stable rows 10
set search_path from current
as $function$
declare
  config regconfig;
  folded text;
  form text;
begin
  if not exists (select from ragdb.synonym s where s.collection_id is null or s.collection_id = c.collection_id) then
    return;
  end if;
  config := c.text_search_config::regconfig;
  folded := lower(normalize(left(question, 10000), nfkc));
  if c.analyzer = 'external' then
    select coalesce(' ' || string_agg(l.word, ' ' order by l.n) || ' ', '') into form
      from jsonb_array_elements_text(options -> 'lexemes') with ordinality as l(word, n);
  else
    form := ragdb.term_form(question, config);
  end if;

  return query
  with every as (
    select s.synonym_id, s.one_way, s.weight, t.term, t.n
      from ragdb.synonym s, unnest(s.terms) with ordinality as t(term, n)
     where s.collection_id is null or s.collection_id = c.collection_id),
  found as materialized (
    select e.*
      from every e
     where (e.n = 1 or not e.one_way)
       -- most terms do not even begin in the question, which is cheap to see
       and case when c.analyzer = 'external' then strpos(form, ' ' || regexp_replace(btrim(e.term), '\s+', ' ', 'g') || ' ') > 0
                when strpos(folded, substring(lower(normalize(e.term, nfkc)) from '[a-z0-9]{1,3}|[[:alnum:]]{1,2}')) = 0 then false
                else coalesce(strpos(form, ragdb.term_form(e.term, config)) > 0, false) end),
  pair as (
    select row_number() over (order by f.synonym_id, f.n, o.n) as n, f.term, o.term as other, f.weight
      from found f join every o on o.synonym_id = f.synonym_id and o.n <> f.n)
  select p.n, p.term, p.other, p.weight, x.covers, x.words
    from pair p
    cross join lateral (
      select array(select w.word from ragdb.question_words(ragdb.term_lexemes(p.term, c), c.analyzer) w) as covers,
             array(select w.word from ragdb.question_words(ragdb.term_lexemes(p.other, c), c.analyzer) w) as words) x
   where x.words <> '{}'
   order by p.n
   limit 200;
end
$function$;
comment on function ragdb.question_synonyms(text, ragdb.collection, jsonb) is
  'The synonyms of a question: for each term that stands in it the other terms, with the words each stands for and the words to search for.';
