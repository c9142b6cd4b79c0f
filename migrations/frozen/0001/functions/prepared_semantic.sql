-- Everything about one call of the semantic leg but its rows: the path, the statement, its parameters and planner
-- settings. The leg runs it, ragdb.search_plan() explains it; `statement` is null where nothing is searched for.
-- `expected` rows come back, or the leg runs `exact` after an HNSW pass that stopped early.
-- Parameters of the statements: $1 collection_id, $2 vals, $3 query, $4 candidates, $5 documents.
create or replace function ragdb.prepared_semantic(
  query_vector double precision[], collection text, candidates integer, "where" jsonb, options jsonb,
  out path text, out matching bigint, out note text, out statement text, out exact text, out expected bigint, out settings text[],
  out collection_id bigint, out vals jsonb, out query vector, out documents bigint)
language plpgsql stable
set search_path from current
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  m ragdb.embedding_model;
  filter record;
  exact_limit integer := ragdb.whole_number(options, 'exact_limit', c.exact_limit);
  at_most integer;
begin
  perform ragdb.check_limits(candidates, exact_limit);
  filter := ragdb.document_filter(c.collection_id, "where");
  note := '';
  settings := '{}';
  select * into m from ragdb.embedding_model e where e.model_id = ragdb.chosen_model(c, options);
  if query_vector is null or not found then
    path := 'empty';
    note := case when query_vector is null then 'no vector of the question' else 'the collection has no embedding model' end;
    return;
  end if;

  -- a set that is filled just now is not searched half; the active one answers with what it has
  if ragdb.set_is_behind(c.collection_id, m.model_id) then
    note := ragdb.behind_note(c.collection_id, m.model_id, m.name);
    if m.model_id <> c.active_model_id then
      path := 'behind';
      note := note || ': not searched';
      return;
    end if;
  end if;

  collection_id := c.collection_id;
  vals := filter.vals;
  query := ragdb.checked_vector(query_vector, m.dims, m.name);
  -- counted as far as `candidates` too: whether an HNSW pass gave all there is has to be known
  at_most := greatest(exact_limit, candidates);
  if "where" = '{}' and not filter.limited and exists (select from ragdb.lexical_stats s where s.collection_id = c.collection_id and s.n_chunks > 4.0 * at_most) then
    matching := at_most + 1;                            -- a large collection, no filter: no need to count
  else
    select n.chunks, n.documents into matching, documents
      from ragdb.matching_chunks(c.collection_id, filter.condition, filter.vals, at_most) n;
  end if;
  expected := least(candidates, matching);
  path := case when matching > exact_limit and ragdb.hnsw_is_valid(m.model_id) then 'hnsw' else 'exact' end;
  if matching > exact_limit and path = 'exact' then
    note := case when note <> '' then note || '; ' else '' end
            || case when m.dims > 4000 then pg_catalog.format('%s dimensions are more than an HNSW index holds', m.dims)
                 else 'no HNSW index for this model' end || ': every matching chunk is compared';
  end if;
  settings := ragdb.leg_settings(path, candidates, (select greatest(0, x.reltuples) from pg_class x where x.oid = to_regclass('ragdb.embedding_hnsw_' || m.model_id)));
  exact := ragdb.ranked_arrays(ragdb.semantic_statement('exact', filter.condition, m.model_id, m.dims));
  statement := case path when 'exact' then exact
                         else ragdb.ranked_arrays(ragdb.semantic_statement(path, filter.condition, m.model_id, m.dims)) end;
end
$function$;
comment on function ragdb.prepared_semantic(double precision[], text, integer, jsonb, jsonb) is
  'One call of the semantic leg, prepared: path, statement with its parameters and planner settings; for the leg and for search_plan.';
