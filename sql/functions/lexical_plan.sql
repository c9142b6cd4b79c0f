-- How the lexical leg will answer a question: the path, the statement's parameters, and a line for the trace.
-- Candidates of the gin path hold one of at most 32 words: known ones, rarest first, while the sum of their document
-- frequencies stays in the collection's budget or below 100; then unknown ones, so that stale statistics hide nothing.
create or replace function ragdb.lexical_plan(
  c ragdb.collection, question text, matching bigint, options jsonb default '{}',
  out path text, out query sparsevec, out candidates tsquery, out note text)
language plpgsql stable
set search_path from current
as $function$
declare
  w record;
  quoted text;
  picked text[] := '{}';
  running bigint := 0;
  items text[] := '{}';
  own integer := 0;                                     -- words of the question itself
  lone integer := 0;                                    -- those of them that are one character
  by_prefix text[] := '{}';
begin
  for w in select * from ragdb.lexical_query(question, c.name, options) loop
    -- A lexeme in a tsquery: in quotes, quotes and backslashes doubled.
    quoted := '''' || replace(replace(w.word, '\', '\\'), '''', '''''') || '''';
    own := own + (w.source = 'question')::integer;
    lone := lone + (w.source = 'question' and w.lone)::integer;
    by_prefix := by_prefix || (quoted || case when w.lone then ':*' else '' end);
    items := items || (ragdb.lexeme_index(w.word) || ':' || w.idf * w.weight);
    if cardinality(picked) < (case when w.ndoc > 0 then 24 else 32 end)
       and (running + w.ndoc <= c.candidate_budget or running < 100) then
      picked := picked || quoted;
      running := running + w.ndoc;
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
    select ('{' || string_agg(i || ':' || s, ',' order by i) || '}/536870912')::sparsevec into query
      from (select split_part(x, ':', 1)::integer as i, sum(split_part(x, ':', 2)::double precision) as s from unnest(items) x group by 1) y;
    candidates := array_to_string(picked, ' | ')::tsquery;
    path := case when matching <= c.exact_limit then 'exact' else 'gin' end;
    note := pg_catalog.format('%s word%s', own, case when own = 1 then '' else 's' end)
            || case when path = 'gin' then pg_catalog.format(', candidates by the %s rarest', cardinality(picked)) else '' end;
  end if;
  if cardinality(items) > own then
    note := note || (
      select ', synonyms: ' || left(string_agg(x.line, '; ' order by x.n), 500)
        from (select pg_catalog.format('%s = %s', s.term, string_agg(s.other, ', ' order by s.n)) as line, min(s.n) as n
                from ragdb.question_synonyms(question, c, options) s group by s.term) x);
  end if;
end
$function$;
comment on function ragdb.lexical_plan(ragdb.collection, text, bigint, jsonb) is
  'How the lexical leg will answer: path (exact, gin, prefix or empty), the question as vector of idf, candidate words, a line about them.';
