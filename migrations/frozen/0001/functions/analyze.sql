-- Text to lexemes, the same for chunks and questions.
--
-- 1. Fold: NFKC (full-width letters, half-width kana), lower case.
-- 2. Scripts written without spaces (Japanese, Chinese, Korean, Thai, Lao, Khmer, Burmese): every run becomes
--    overlapping two-character lexemes. The last character of a run is a lexeme too, so that each single
--    character begins some lexeme and a one-character question can be matched by prefix.
-- 3. Everything else: the collection's text-search configuration, punctuation of every script read as space.
-- 4. Identifiers (ERR_CONN_RESET, v3.2, KZ-4410-B, example.com/a, C++, C#) are kept whole as well as by part, and
--    16,000 is 16000 too.
--
-- Never raises: at most 60,000 characters are read, and words above 2 kB are left out as PostgreSQL does.
create or replace function ragdb.analyze(body text, config regconfig) returns tsvector
language plpgsql immutable parallel safe strict
set search_path from current
-- "word is too long to be indexed" is no news for who searches
set client_min_messages = error
as $function$
declare
  unspaced constant text := ragdb.unspaced_scripts();
  letter constant text := '[^' || substr(ragdb.between_words(), 2, length(ragdb.between_words()) - 3) || '[:space:]'']';
  joined constant text := letter || '+(?:[-_./:@#~+]+' || letter || '+)+|' || letter || '+(?:\+\+|#(?!#))';
  thousands constant text := '\m\d{1,3}(?:,\d{3})+\M';
  folded text := left(body, 60000);
  spaced text;
  result tsvector;
  extra text;
begin
  -- ASCII is normal already
  if octet_length(folded) <> length(folded) then
    folded := left(regexp_replace(normalize(folded, nfkc), '[\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff]', '', 'g'), 60000);
  end if;
  folded := lower(folded);
  spaced := folded;
  if folded ~ unspaced then
    spaced := regexp_replace(folded, unspaced, ' ', 'g');
  end if;

  -- not translate(): it takes ten times as long
  result := to_tsvector(config, regexp_replace(spaced, ragdb.between_words(), ' ', 'g'));

  if spaced ~ joined then
    select string_agg(pg_catalog.format('''%s'':%s', m.match[1], least(m.n, 16383)), ' ')
      into extra
      from regexp_matches(spaced, joined, 'g') with ordinality as m(match, n)
     where octet_length(m.match[1]) <= 500;
    result := result || coalesce(extra, '')::tsvector;
  end if;

  if spaced ~ thousands then
    select string_agg(pg_catalog.format('''%s'':%s', replace(m.match[1], ',', ''), least(m.n, 16383)), ' ')
      into extra
      from regexp_matches(spaced, '(' || thousands || ')', 'g') with ordinality as m(match, n)
     where octet_length(m.match[1]) <= 500;
    result := result || coalesce(extra, '')::tsvector;
  end if;

  if spaced is distinct from folded then
    select string_agg(pg_catalog.format('''%s'':%s', l.lexeme, least(l.n, 16383)), ' ' order by l.n)
      into extra
      from (select case when lead(c.ch) over w is null or lead(c.ch) over w !~ unspaced then c.ch
                        else c.ch || lead(c.ch) over w end as lexeme,
                   c.n
              from unnest(string_to_array(folded, null)) with ordinality as c(ch, n)
            window w as (order by c.n)) l
     where l.lexeme ~ ('^' || unspaced);
    result := result || coalesce(extra, '')::tsvector;
  end if;

  return result;
end
$function$;
comment on function ragdb.analyze(text, regconfig) is
  'Text to lexemes: two-character lexemes for scripts without spaces, the text-search configuration for the others, identifiers whole and by part. Never raises.';
