-- Everything about one call of the lexical leg but its rows: the path, the statement, its parameters and planner
-- settings. The leg runs it, ragdb.search_plan() explains it; `statement` is null where nothing is searched for.
-- Where a gin pass gives fewer than `expected` rows and `exact` is given, the leg runs that instead.
-- Parameters of the statements: $1 collection_id, $2 vals, $3 query, $4 candidates, $5 words, $6 documents.
create or replace function ragdb.prepared_lexical(
  question text, collection text, candidates integer, "where" jsonb, options jsonb,
  out path text, out matching bigint, out note text, out statement text, out exact text, out expected bigint, out settings text[],
  out collection_id bigint, out vals jsonb, out query sparsevec, out words tsquery, out documents bigint)
language plpgsql stable
set search_path from current
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  filter record;
  plan record;
  in_collection double precision;
  estimated double precision;
begin
  filter := ragdb.document_filter(c.collection_id, "where");
  c.exact_limit := ragdb.whole_number(options, 'exact_limit', c.exact_limit);
  perform ragdb.check_limits(candidates, c.exact_limit);
  select m.chunks, m.documents into matching, documents
    from ragdb.matching_chunks(c.collection_id, filter.condition, filter.vals, greatest(c.exact_limit, candidates)) m;
  if matching > c.exact_limit then
    select greatest(s.n_chunks, prepared_lexical.matching) into in_collection
      from ragdb.lexical_stats s where s.collection_id = c.collection_id;
    estimated := greatest(matching, in_collection * ragdb.matching_share(c.collection_id, filter.condition, filter.vals));
    -- So many candidates that about candidate_budget of them match the filter, or a filter would starve.
    c.candidate_budget := least(c.candidate_budget * coalesce(in_collection / estimated, 1), 1e9);
    -- GIN knows neither collection nor filter: where it would read more chunks than there are to score, score them all.
    if c.exact_limit > 0 and estimated < c.candidate_budget / 2 / in_collection
         * (select greatest(t.reltuples, in_collection) from pg_class t where t.oid = 'ragdb.chunk'::regclass) then
      c.exact_limit := matching;
    end if;
  end if;

  plan := ragdb.lexical_plan(c, question, matching, candidates, options);
  path := plan.path;
  note := plan.note;
  collection_id := c.collection_id;
  vals := filter.vals;
  query := plan.query;
  words := plan.candidates;
  settings := ragdb.leg_settings(path, candidates);
  statement := ragdb.ranked_arrays(ragdb.lexical_statement(path, filter.condition));
  expected := least(candidates, matching);
  -- 100,000: about half a second. With all words among the candidates another pass would find nothing more.
  if path = 'gin' and c.exact_limit > 0 and estimated <= 100000 and not plan.complete then
    exact := ragdb.ranked_arrays(ragdb.lexical_statement('exact', filter.condition));
  end if;
end
$function$;
comment on function ragdb.prepared_lexical(text, text, integer, jsonb, jsonb) is
  'One call of the lexical leg, prepared: path, statement with its parameters and planner settings; for the leg and for search_plan.';
