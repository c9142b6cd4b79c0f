-- How the lexical leg will answer a question: the path, the statement's parameters, and a line for the trace.
-- Candidates of the gin path hold one of at most 24 known words, rarest first, while the sum of their document
-- frequencies stays in a third of the collection's budget or below twice the rows wanted, or any unknown one, so that
-- stale statistics hide nothing. The rest is for pairs of the next twelve words, rarest pairs first: a chunk with
-- several middling words and no rare one is often among the best (docs/decisions/0007-candidates-by-pairs.md).
create or replace function ragdb.lexical_plan(
  c ragdb.collection, question text, matching bigint, wanted integer, options jsonb default '{}',
  out path text, out query sparsevec, out candidates tsquery, out complete boolean, out note text)
language plpgsql stable
set search_path from current
set extra_float_digits = 1
as $function$
declare
  w record;
  quoted text;
  picked text[] := '{}';
  running bigint := 0;
  next_words text[] := '{}';
  next_ndoc bigint[] := '{}';
  pairs text[];
  items text[] := '{}';
  own integer := 0;                                     -- words of the question itself
  lone integer := 0;                                    -- those of them that are one character
  by_prefix text[] := '{}';
begin
  complete := true;
  for w in select * from ragdb.lexical_query(question, c.name, options) loop
    -- A lexeme in a tsquery: in quotes, quotes and backslashes doubled.
    quoted := '''' || replace(replace(w.word, '\', '\\'), '''', '''''') || '''';
    own := own + (w.source = 'question')::integer;
    lone := lone + (w.source = 'question' and w.lone)::integer;
    by_prefix := by_prefix || (quoted || case when w.lone then ':*' else '' end);
    items := items || (ragdb.lexeme_index(w.word) || ':' || w.idf * w.weight);
    if w.ndoc = 0 or cardinality(picked) < 24
       and (running + w.ndoc <= c.candidate_budget / 3 or running < 2 * wanted) then
      picked := picked || quoted;
      running := running + w.ndoc;
    else
      complete := false;
      if w.ndoc > 0 and cardinality(next_words) < 12 then
        next_words := next_words || quoted;
        next_ndoc := next_ndoc || w.ndoc::bigint;
      end if;
    end if;
  end loop;

  if items = '{}' then
    path := 'empty';
    note := 'no word of the question is searched for';
    return;
  end if;
  if lone = own and own > 0 then
    path := 'prefix';
    candidates := array_to_string(by_prefix, ' | ')::tsquery;
    note := 'one-character words, by prefix';
  else
    -- 1e-30: what is less, single precision may not hold
    select ('{' || string_agg(i || ':' || greatest(s, 1e-30), ',' order by i) || '}/536870912')::sparsevec into query
      from (select split_part(x, ':', 1)::integer as i, sum(split_part(x, ':', 2)::double precision) as s from unnest(items) x group by 1) y;
    path := case when matching <= c.exact_limit then 'exact' else 'gin' end;
    note := pg_catalog.format('%s word%s', own, case when own = 1 then '' else 's' end);
    if path = 'gin' then
      pairs := ragdb.rare_pairs(c, next_words, next_ndoc);
      note := note || pg_catalog.format(', candidates by the %s rarest', cardinality(picked))
              || case when pairs = '{}' then ''
                      else pg_catalog.format(' and %s pair%s', cardinality(pairs), case when cardinality(pairs) = 1 then '' else 's' end) end;
    end if;
    candidates := array_to_string(picked || pairs, ' | ')::tsquery;
  end if;
  if cardinality(items) > own then
    note := note || (
      select ', synonyms: ' || left(string_agg(x.line, '; ' order by x.n), 500)
        from (select pg_catalog.format('%s = %s', s.term, string_agg(s.other, ', ' order by s.n)) as line, min(s.n) as n
                from ragdb.question_synonyms(question, c, options) s group by s.term) x);
  end if;
end
$function$;
comment on function ragdb.lexical_plan(ragdb.collection, text, bigint, integer, jsonb) is
  'How the lexical leg will answer: path (exact, gin, prefix or empty), the question as vector of idf, candidate words and pairs, whether these are all words, a line about them.';

-- Pairs of words ('a' & 'b'), those with the largest sum of idf first, as many as two thirds of the collection's budget
-- allow, at most 40. How many chunks hold both is guessed between chance (a b / N) and the most there can be (the rarer
-- word's): words of one question, and more so the two-character lexemes of one word, meet more often than by chance.
create or replace function ragdb.rare_pairs(c ragdb.collection, words text[], ndoc bigint[]) returns text[]
language plpgsql stable
set search_path from current
as $function$
declare
  total double precision := (select greatest(s.n_chunks, 1) from ragdb.lexical_stats s where s.collection_id = c.collection_id);
begin
  return array(
    select p.pair
      from (select '(' || a.word || ' & ' || b.word || ')' as pair, row_number() over x as place,
                   sum(least(a.n, b.n) * sqrt(least(1, greatest(a.n, b.n) / total))) over x as running
              from unnest(words, ndoc) with ordinality as a(word, n, i)
              join unnest(words, ndoc) with ordinality as b(word, n, i) on a.i < b.i
            window x as (order by a.n * b.n, a.i, b.i)) p
     where p.running <= c.candidate_budget / 3 * 2 and p.place <= 40
     order by p.place);
end
$function$;
comment on function ragdb.rare_pairs(ragdb.collection, text[], bigint[]) is
  'Pairs of quoted words that stand together in few chunks, within two thirds of the collection''s candidate_budget.';
