-- How the lexical leg will answer a question: the path, the statement's parameters, and a line for the trace.
-- Candidates of the gin path hold one of at most 32 words: known ones, rarest first, while the sum of their document
-- frequencies stays in the collection's budget or below 100; then unknown ones, so that stale statistics hide nothing.
create or replace function ragdb.lexical_plan(
  c ragdb.collection, question text, matching bigint,
  out path text, out query sparsevec, out candidates tsquery, out note text)
language plpgsql stable
set search_path from current
as $function$
declare
  w record;
  picked text[] := '{}';
  running bigint := 0;
  items text[] := '{}';
  lone text[] := '{}';
begin
  for w in select * from ragdb.lexical_query(question, c.name) loop
    -- A lexeme in a tsquery: in quotes, quotes and backslashes doubled.
    if w.lone then
      lone := lone || ('''' || w.word || ''':*');
    end if;
    items := items || (ragdb.lexeme_index(w.word) || ':' || w.idf);
    if cardinality(picked) < (case when w.ndoc > 0 then 24 else 32 end)
       and (running + w.ndoc <= c.candidate_budget or running < 100) then
      picked := picked || ('''' || replace(replace(w.word, '\', '\\'), '''', '''''') || '''');
      running := running + w.ndoc;
    end if;
  end loop;

  if items = '{}' then
    path := 'empty';
    note := 'no word of the question is searched for';
    return;
  end if;
  if cardinality(lone) = cardinality(items) then
    path := 'prefix';
    candidates := array_to_string(lone, ' | ')::tsquery;
    note := 'one-character words, by prefix';
    return;
  end if;
  select ('{' || string_agg(i || ':' || s, ',' order by i) || '}/536870912')::sparsevec into query
    from (select split_part(x, ':', 1)::integer as i, sum(split_part(x, ':', 2)::double precision) as s from unnest(items) x group by 1) y;
  candidates := array_to_string(picked, ' | ')::tsquery;
  path := case when matching <= c.exact_limit then 'exact' else 'gin' end;
  note := format('%s word%s', cardinality(items), case when cardinality(items) = 1 then '' else 's' end)
          || case when path = 'gin' then format(', candidates by the %s rarest', cardinality(picked)) else '' end;
end
$function$;
comment on function ragdb.lexical_plan(ragdb.collection, text, bigint) is
  'How the lexical leg will answer: path (exact, gin, prefix or empty), the question as vector of idf, candidate words.';
