-- What ragdb.search() would run, as EXPLAIN shows it: each leg's very statement with its parameters and settings.
--   select line from ragdb.search_plan('how do I reset the router', 'help', "where" => '{"tenant": 7}') where leg = 'lexical';
-- options as for ragdb.search(), and {"analyze": true}: run it too, EXPLAIN (ANALYZE, BUFFERS). A leg that searches
-- for nothing gives one line that says why. A pass by an index may give too few; with analyze the exact pass that then
-- follows is shown as well. It tells row counts of the whole tables: for who looks after the database, not for readers.
create or replace function ragdb.search_plan(
  question text, collection text default 'default', k integer default 10, "where" jsonb default '{}',
  query_vector double precision[] default null, options jsonb default '{}')
returns table (leg text, path text, line text)
language plpgsql volatile
security definer
set search_path from current
set standard_conforming_strings = on
set jit = off
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  candidates integer;
  legs jsonb := coalesce(options -> 'legs', '["lexical", "semantic"]');
  explain text;
  p record;
  before text[];
begin
  perform ragdb.check_search(question, coalesce(options, '{}'), '{analyze}');
  if jsonb_typeof(options -> 'analyze') <> 'boolean' then
    raise exception 'analyze is %', options -> 'analyze' using errcode = 'RD004', hint = 'It is true or false.';
  end if;
  candidates := ragdb.list_length(k, ragdb.with_fusion(c, coalesce(options, '{}')));
  explain := case when (options ->> 'analyze')::boolean then 'explain (analyze, buffers, settings) ' else 'explain (settings) ' end;
  if legs ? 'lexical' then
    leg := 'lexical';
    p := ragdb.prepared_lexical(question, collection, candidates, "where", options);
    path := p.path;
    if p.statement is null then
      line := p.note;
      return next;
    else
      before := ragdb.swap_settings(p.settings);
      for line in execute explain || p.statement using p.collection_id, p.vals, p.query, candidates, p.words, p.documents loop
        return next;
      end loop;
      perform ragdb.swap_settings(before);
      if p.exact is not null and (options ->> 'analyze')::boolean
         and (select l.path from ragdb.lexical_leg(question, collection, candidates, "where", options) l) = 'exact' then
        path := 'exact';
        for line in execute explain || p.exact using p.collection_id, p.vals, p.query, candidates, p.words, p.documents loop
          return next;
        end loop;
      end if;
    end if;
  end if;

  if legs ? 'semantic' then
    leg := 'semantic';
    query_vector := coalesce(query_vector, ragdb.known_query_vector(question, ragdb.chosen_model(c, options)));
    p := ragdb.prepared_semantic(query_vector, collection, candidates, "where", options);
    path := p.path;
    if p.statement is null then
      line := p.note;
      return next;
      return;
    end if;
    before := ragdb.swap_settings(p.settings);
    for line in execute explain || p.statement using p.collection_id, p.vals, p.query, candidates, p.documents loop
      return next;
    end loop;
    perform ragdb.swap_settings(before);
    if path = 'hnsw' and (options ->> 'analyze')::boolean
       and (select s.path from ragdb.semantic_leg(query_vector, collection, candidates, "where", options) s) = 'exact' then
      path := 'exact';
      for line in execute explain || p.exact using p.collection_id, p.vals, p.query, candidates, p.documents loop
        return next;
      end loop;
    end if;
  end if;
end
$function$;
comment on function ragdb.search_plan(text, text, integer, jsonb, double precision[], jsonb) is
  'What ragdb.search() would run: EXPLAIN of each leg''s statement, with its parameters and settings; {"analyze": true} runs it.';
