-- Lexemes that the caller brings (collection.analyzer = external), in order and with repeats, as a tsvector.
-- Left out: blank ones, words above 2 kB, as PostgreSQL does, and what goes beyond the 1 MB of a tsvector.
create or replace function ragdb.given_lexemes(lexemes jsonb) returns tsvector
language plpgsql immutable parallel safe
set search_path from current
as $function$
begin
  if lexemes is null or lexemes = 'null' then
    return null;
  end if;
  if jsonb_typeof(lexemes) <> 'array' or jsonb_path_exists(lexemes, 'strict $[*] ? (@.type() != "string")') then
    raise exception 'lexemes is %, not a list of words', left(lexemes::text, 80)
      using errcode = 'RD004', hint = 'Write it like "lexemes": ["東京", "図書館"], in order and with repeats.';
  end if;
  return (
    select coalesce(string_agg(pg_catalog.format('''%s'':%s', replace(replace(w.word, '\', '\\'), '''', ''''''), least(w.n, 16383)), ' '), '')::tsvector
      from (select t.word, t.n, sum(octet_length(t.word) + 8) over (order by t.n) as bytes
              from jsonb_array_elements_text(lexemes) with ordinality as t(word, n)
             where t.word ~ '[^\s\u3000]' and octet_length(t.word) <= 2000) w
     where w.bytes <= 1000000);
end
$function$;
comment on function ragdb.given_lexemes(jsonb) is 'A caller''s lexemes as a tsvector with positions; null for null, an error where it is no list of words.';

-- The lexemes of a question: by ragdb.analyze(), or, in a collection with an external analyzer, those in options.
create or replace function ragdb.question_lexemes(question text, c ragdb.collection, options jsonb) returns tsvector
language plpgsql stable
set search_path from current
as $function$
declare
  given tsvector := ragdb.given_lexemes(options -> 'lexemes');
begin
  if c.analyzer = 'external' and given is null then
    raise exception 'collection "%" has an external analyzer, and the question comes without lexemes', c.name
      using errcode = 'RD004', hint = 'Pass options => ''{"lexemes": ["..."]}'', by the analyzer that made those of the chunks.';
  elsif c.analyzer = 'builtin' and given is not null then
    raise exception 'the question comes with lexemes, but collection "%" has the builtin analyzer', c.name
      using errcode = 'RD004', hint = 'Leave options.lexemes out, or use a collection made with {"analyzer": "external"}.';
  end if;
  return coalesce(given, ragdb.analyze(question, c.text_search_config::regconfig));
end
$function$;
comment on function ragdb.question_lexemes(text, ragdb.collection, jsonb) is 'The lexemes of a question, analyzed here or given in options.';
