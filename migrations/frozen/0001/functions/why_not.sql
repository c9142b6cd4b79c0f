-- Why a chunk that was expected did not come, or stands low: where it stood at every stage of a run, and what kept it out.
--   select stage, name, finding, rank, detail from ragdb.why_not(42, 'article/17#手当#00');
-- chunk is a label, a chunk's id, or a document's uri: of its chunks the one that stood best in the lists of the run.
-- A leg of a run keeps `candidates` chunks: of a chunk behind them the rank is counted anew, among all that match (`rank`,
-- exact) and as the leg's own path finds it (detail.index_rank, to 1,000; null: not among them). Documents, words and
-- statistics are today's, the lists of the run are its own. The last row, stage `verdict`, says where it was lost.
create or replace function ragdb.why_not(run_id bigint, chunk text)
returns table (step integer, stage text, name text, finding text, rank bigint, score double precision, detail jsonb)
language plpgsql volatile rows 20
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
#variable_conflict use_column
declare
  r ragdb.run;
  c ragdb.collection;
  s ragdb.run_stage;
  id bigint;
  doc ragdb.document;
  key text;
  value jsonb;
  filter record;
  hidden text[] := '{}';
  place record;
  lost text;
  allowed text;
  passes boolean;
  lists jsonb := '{}';
  stands bigint;                                        -- in the last ranking of all that it was in
begin
  select * into r from ragdb.run x
   where x.run_id = why_not.run_id and ragdb.reads_run(x.collection, x.caller, x.limits_hash, x.document_ids);
  if not found then
    raise exception 'run % does not exist', run_id
      using errcode = 'RD009', hint = 'Look at: select run_id, question from ragdb.list_runs()';
  end if;
  c := ragdb.readable_collection(r.collection);
  c.active_model_id := ragdb.run_model(r, c);
  -- by label last: of the three it alone has no index, for it would cost every chunk one and serve only this
  id := coalesce(
    (select p.chunk_id
       from ragdb.chunk_place p join ragdb.document d on d.document_id = p.document_id and d.ready_revision = p.revision
      where p.chunk_id = case when chunk ~ '^\d{1,18}$' then chunk::bigint end and d.collection_id = c.collection_id
        and ragdb.readable_documents(array[d.document_id]) <> '{}'
      limit 1),
    (select p.chunk_id
       from ragdb.document d join ragdb.chunk_place p on p.document_id = d.document_id and p.revision = d.ready_revision
       left join ragdb.run_candidate x on x.run_id = r.run_id and x.stage = 'retrieve' and x.chunk_id = p.chunk_id
      where d.collection_id = c.collection_id and d.uri = chunk and ragdb.readable_documents(array[d.document_id]) <> '{}'
      order by x.rank nulls last, p.ordinal limit 1),
    (select p.chunk_id
       from ragdb.chunk_place p join ragdb.document d on d.document_id = p.document_id and d.ready_revision = p.revision
      where d.collection_id = c.collection_id and p.label = chunk and ragdb.readable_documents(array[d.document_id]) <> '{}'
      order by p.chunk_id limit 1));
  if id is null then
    raise exception 'collection % has no chunk %', c.name, left(chunk, 200)
      using errcode = 'RD004', hint = 'Give a label, a chunk''s id or a document''s uri; labels are shown by: ragdb show --chunks DOCUMENT';
  end if;
  select d.* into doc from ragdb.chunk k join ragdb.document d on d.document_id = k.document_id where k.chunk_id = id;

  -- what hides it: each part of the filter alone
  step := 0;
  stage := 'where';
  for key, value in
    select e.key, e.value from jsonb_each(r."where") e
    union all select 'status', '"active"' where not r."where" ? 'status'
  loop
    filter := ragdb.where_clause(pg_catalog.jsonb_build_object('status', 'any') || pg_catalog.jsonb_build_object(key, value));
    execute pg_catalog.format('select exists (select from ragdb.document d where d.document_id = $1 and (%s) is true)', filter.condition)
       into passes using doc.document_id, filter.vals;
    if not passes then
      hidden := hidden || key;
      name := key;
      finding := pg_catalog.format('the filter hides its document: %s', key);
      detail := pg_catalog.jsonb_build_object('asked', value, 'has', coalesce(to_jsonb(doc) -> key, doc.metadata -> key));
      return next;
    end if;
  end loop;
  -- told to those who read everything, and to nobody else
  if r.caller <> ragdb.caller() and ragdb.reads_all() then
    allowed := ragdb.role_reads(r.caller, doc.document_id);
    if allowed <> 'yes' then
      name := 'rights';
      finding := case allowed when 'no' then pg_catalog.format('role %s may not read its document', r.caller)
                              else pg_catalog.format('whether role %s may read its document %s', r.caller, allowed) end;
      detail := '{}';
      hidden := hidden || case when allowed = 'no' then array['rights'] else '{}' end;
      return next;
    end if;
  end if;
  if doc.ready_at is not null and doc.ready_at > r.started_at then
    name := 'time';
    finding := 'its document became ready after this run, so the lists of the run cannot hold it as it is now';
    detail := pg_catalog.jsonb_build_object('ready_at', doc.ready_at, 'asked_at', r.started_at);
    return next;
  end if;

  if (r.usage ->> 'redacted')::boolean then
    name := 'redacted';
    finding := 'the texts of this run were redacted: words, evidence and ranks are those of the stored question';
    detail := '{}';
    return next;
  end if;
  if r.caller <> ragdb.caller() then
    name := 'who';
    finding := pg_catalog.format('asked by role %s; ranks are counted among what %s reads', r.caller, ragdb.caller());
    detail := '{}';
    return next;
  end if;

  for s in select * from ragdb.run_stage x where x.run_id = r.run_id order by x.step loop
    step := s.step;
    stage := s.stage;
    name := s.name;
    detail := '{}';
    rank := array_position(s.chunk_ids, id);
    score := s.scores[rank];
    finding := (select pg_catalog.format('fell: %s', d.key) || case when d.key = 'same text' then coalesce(
                         (select pg_catalog.format('; chunk %s stands for it', v.chunk_id)
                            from ragdb.chunk k join ragdb.chunk v on v.text_hash = k.text_hash
                           where k.chunk_id = id and v.chunk_id = any (s.chunk_ids) and ragdb.readable_documents(array[v.document_id]) <> '{}' limit 1), '') else '' end
                  from jsonb_each(s.dropped) d where d.value @> to_jsonb(id) limit 1);
    continue when s.stage in ('route', 'rewrite');
    if s.stage = 'retrieve' then
      lists := lists || pg_catalog.jsonb_build_object(s.name, to_jsonb(s.chunk_ids));
      if s.note like 'left out:%' then
        finding := s.note;
      else
        select p.* into place from ragdb.leg_place(c, r.caller, split_part(s.name, '/', 1), coalesce(s.query, r.question), id,
                                                   case when hidden = '{}' then r."where" else '{"status": "any"}' end) p;
        detail := pg_catalog.jsonb_strip_nulls(place.detail || pg_catalog.jsonb_build_object(
          'index_rank', nullif(place.index_rank, place.exact_rank), 'note', nullif(case when rank is not null then place.note end, ''), 'listed', cardinality(s.chunk_ids), 'query', s.query, 'filter_left_out', nullif(hidden <> '{}', false)));
        finding := case when rank is not null then pg_catalog.format('rank %s of %s', rank, cardinality(s.chunk_ids))
                        when place.note <> '' then place.note
                        when hidden <> '{}' then pg_catalog.format('hidden; without the filter rank %s of all', place.exact_rank)
                        else pg_catalog.format('not among the %s of the list; rank %s of all that match', cardinality(s.chunk_ids), place.exact_rank) end;
        rank := coalesce(place.exact_rank, rank);
        score := coalesce(score, place.score);
      end if;
      if array_position(s.chunk_ids, id) is not null then
        lost := 'listed';
      end if;
    elsif s.stage = 'validate' then
      detail := ragdb.evidence_of(r, id);
      finding := case when rank is not null then 'evidence'
                      when stands > r.k then pg_catalog.format('not looked at: rank %s, and %s were asked for', stands, r.k)
                      when lost is null or lost in ('listed', 'fuse', 'rerank', 'copy') then 'did not come so far'
                      else 'no evidence' end;
      lost := case when rank is null and stands <= r.k and lost in ('fused', 'reranked') then 'validate' else lost end;
    else
      finding := coalesce(finding, case when rank is not null then pg_catalog.format('rank %s', rank) end,
        (select pg_catalog.format('inside passage %s', p.label)
           from ragdb.chunk_place p
           join ragdb.chunk_place me on me.chunk_id = id and me.document_id = p.document_id and me.revision = doc.ready_revision
          -- where each passage ends is known of windows only
          where s.stage in ('expand', 'pack', 'synthesize') and coalesce(r.pipeline ->> 'expand', 'window') = 'window'
            and s.note not like '%without neighbours%' and p.chunk_id = any (s.chunk_ids) and p.revision = doc.ready_revision
            and abs(p.ordinal - me.ordinal) <= coalesce((r.pipeline ->> 'window')::integer, 0) limit 1),
        case when lost is null then 'did not come so far' else 'not among what came out' end);
      stands := case when s.stage in ('fuse', 'rerank', 'freshen') then rank else stands end;
      if s.stage = 'fuse' and rank is null and lost = 'listed' then
        detail := pg_catalog.jsonb_build_object('rank_in_all_lists', ragdb.fused_rank(r, lists, id));
      end if;
      if s.stage = 'fuse' then
        lost := case when rank is null and lost = 'listed' and finding like 'fell: same text%' then 'copy'
                     when rank is null and lost = 'listed' then 'fuse' when rank is not null then 'fused' else lost end;
      elsif s.stage = 'rerank' then
        lost := case when rank is null and lost = 'fused' then 'rerank' when rank is not null then 'reranked' else lost end;
      elsif s.stage in ('pack', 'synthesize') and lost = 'validate' and r.mode = 'extractive' then
        null;                                           -- shown around what was quoted, and only evidence is quoted
      elsif s.stage = 'pack' and finding = 'fell: token budget' then
        lost := 'pack';
      elsif s.stage = 'pack' and finding like 'fell:%' then
        lost := 'repeats';
      elsif s.stage = 'pack' and (rank is not null or finding like 'inside%') then
        lost := 'packed';
      elsif s.stage = 'synthesize' and (rank is not null) then
        lost := 'cited';
      end if;
    end if;
    return next;
  end loop;

  step := null;
  stage := 'verdict';
  name := '';
  rank := null;
  score := null;
  detail := pg_catalog.jsonb_build_object('chunk', (select p.label from ragdb.chunk_place p where p.chunk_id = id and p.document_id = doc.document_id and p.revision = doc.ready_revision limit 1));
  finding := case
    when hidden <> '{}' and stands is not null then pg_catalog.format('it came then, and is hidden now by %s', array_to_string(hidden, ', '))
    when hidden <> '{}' then pg_catalog.format('hidden by %s', array_to_string(hidden, ', '))
    when r.outcome = 'no_retrieval' then 'nothing was searched'
    when lost = 'copy' then 'another chunk of the same text stands for it'
    when lost = 'repeats' then 'a better passage says what it says'
    when lost is null then pg_catalog.format('no leg had it among its %s candidates', r.pipeline ->> 'candidates')
    when lost = 'fuse' then 'a leg had it, and the fused ranking was cut before it'
    when lost = 'rerank' then 'the reranker put it below the cut'
    when lost = 'validate' then 'it was found, and is no evidence for the question'
    when lost = 'pack' then 'the token budget was used up before it'
    when lost in ('fused', 'reranked') and stands <= coalesce((r.usage ->> 'offset')::integer, 0) then 'it is on an earlier page'
    when lost in ('fused', 'reranked') and stands > r.k + coalesce((r.usage ->> 'offset')::integer, 0) then pg_catalog.format('it ranked behind the %s that were asked for', r.k)
    when lost in ('fused', 'reranked') and r.verb = 'search' then 'it came back'
    when lost = 'packed' and r.outcome in ('llm_failed', 'cancelled') then 'it was shown to the model, which gave no whole answer'
    when coalesce(r.pipeline ->> 'expand', 'window') <> 'window' and r.verb = 'ask' and lost in ('fused', 'reranked', 'validate', 'fuse') then 'it is no passage of its own; whether it stands inside one is not recorded'
    when lost = 'packed' then 'the reader was shown it, and cited something else'
    when lost = 'cited' then 'it was cited'
    else 'a leg had it, and the run ended there' end;
  return next;
end
$function$;
comment on function ragdb.why_not(bigint, text) is
  'Where a chunk stood at every stage of a run, and what kept it out: filter, right, rank in each leg, words, evidence, budget.';

-- Where a chunk stands in a leg for a text: among all chunks that match, and as the leg's own path finds it (to 1,000).
create or replace function ragdb.leg_place(
  c ragdb.collection, asked_by text, leg text, query text, id bigint, "where" jsonb,
  out exact_rank bigint, out index_rank bigint, out score double precision, out note text, out detail jsonb)
language plpgsql volatile
set search_path from current
as $function$
declare
  filter record := ragdb.document_filter(c.collection_id, "where");
  m ragdb.embedding_model;
  prepared record;
  numbers double precision[];
  ranked text;
begin
  note := '';
  detail := '{}';
  if leg = 'lexical' then
    if c.analyzer = 'external' then
      note := 'the words of this collection are made by a program: its rank is not known here';
      return;
    end if;
    prepared := ragdb.prepared_lexical(query, c.name, 1000, "where", '{}');
    if prepared.path = 'empty' then
      note := 'the question has no word that this leg searches for';
      return;
    end if;
    select pg_catalog.jsonb_build_object('holds', coalesce(jsonb_agg(w.word order by w.idf desc) filter (where h.holds), '[]'),
                                         'lacks', coalesce(jsonb_agg(w.word order by w.idf desc) filter (where not h.holds), '[]'))
      into detail
      from ragdb.lexical_query(query, c.name) w
      join ragdb.chunk k on k.chunk_id = id
     cross join lateral (
       select case when w.lone then k.lexemes @@ ('''' || replace(replace(w.word, '\', '\\'), '''', '''''') || ''':*')::tsquery
                   else w.word = any (tsvector_to_array(k.lexemes)) end as holds) h
     where w.content;
    ranked := ragdb.lexical_statement(case prepared.path when 'prefix' then 'prefix' else 'exact' end, filter.condition);
    execute pg_catalog.format('select x.n, x.score from (select y.*, row_number() over (order by y.score desc, y.chunk_id) as n from (%s) y) x where x.chunk_id = $7', ranked)
       into exact_rank, score using c.collection_id, filter.vals, prepared.query, 2147483647, prepared.words, null::bigint, id;
    index_rank := array_position((select l.chunk_ids from ragdb.lexical_leg(query, c.name, 1000, "where") l), id);
    note := case when exact_rank is null then 'it holds none of the words that are searched for' else '' end;
    return;
  end if;

  select * into m from ragdb.embedding_model e where e.model_id = c.active_model_id;
  -- kept by role; whoever may see the run may see what it was asked with
  -- a made-up passage (hyde) is kept under another name than a question of the same words
  select v.v::real[]::double precision[] into numbers
    from ragdb.query_vector v
   where v.model_id = m.model_id and v.asked_by = leg_place.asked_by
     and v.text_hash in (sha256(convert_to(query, 'UTF8')), sha256(convert_to(E'\x1fpassage\x1f' || query, 'UTF8')))
   limit 1;
  if not exists (select from ragdb.embedding e where e.chunk_id = id and e.model_id = m.model_id) then
    note := pg_catalog.format('it has no vector of model %s yet', m.name);
    return;
  end if;
  if numbers is null then
    note := 'the vector of this text is not kept any more: ask again, then look at the new run';
    return;
  end if;
  ranked := ragdb.semantic_statement('exact', filter.condition, m.model_id, m.dims);
  execute pg_catalog.format('select x.n, x.score from (select y.*, row_number() over (order by y.score desc, y.chunk_id) as n from (%s) y) x where x.chunk_id = $6', ranked)
     into exact_rank, score using c.collection_id, filter.vals, ragdb.checked_vector(numbers, m.dims, m.name), 2147483647, null::bigint, id;
  index_rank := array_position((select l.chunk_ids from ragdb.semantic_leg(numbers, c.name, 1000, "where", pg_catalog.jsonb_build_object('model_id', m.model_id)) l), id);
end
$function$;
comment on function ragdb.leg_place(ragdb.collection, text, text, text, bigint, jsonb) is
  'Where a chunk stands in a leg for a text: exact rank, rank by the leg''s own path, score, the words it holds and lacks; for ragdb.why_not().';

-- The model whose vectors a run searched, while the collection has a set of it, else the active one.
create or replace function ragdb.run_model(r ragdb.run, c ragdb.collection) returns bigint
language sql stable
set search_path from current
as $function$
  select coalesce((select s.model_id
                     from ragdb.embedding_model m
                     join ragdb.vector_set s on s.collection_id = c.collection_id and s.model_id = m.model_id
                    where m.name = r.usage ->> 'vector_set'), c.active_model_id)
$function$;
comment on function ragdb.run_model(ragdb.run, ragdb.collection) is 'The model whose vectors a run searched, while the collection has a set of it, else the active one.';

-- The rank of a chunk in the fusion of a run's lists, however far behind; null where no list has it.
create or replace function ragdb.fused_rank(r ragdb.run, lists jsonb, id bigint) returns bigint
language plpgsql volatile
set search_path from current
as $function$
declare
  further double precision := coalesce((r.pipeline ->> 'rewrite_weight')::double precision, 1);
  weights jsonb := (
    select jsonb_object_agg(l.key, coalesce((r.pipeline -> 'weights' ->> split_part(l.key, '/', 1))::double precision, 1)
             * case when l.key like '%/%' then further / (select count(*) from jsonb_object_keys(lists) o(key) where o.key like split_part(l.key, '/', 1) || '/%') else 1 end)
      from jsonb_object_keys(lists) l(key));
begin
  return (select f.n
            from (select x.chunk_id, row_number() over (order by x.score desc, x.chunk_id) as n
                    from ragdb.rrf_fuse(lists, ragdb.weights_that_count(lists, weights), coalesce((r.pipeline ->> 'rrf_k')::integer, 60)) x) f
           where f.chunk_id = id);
end
$function$;
comment on function ragdb.fused_rank(ragdb.run, jsonb, bigint) is 'The rank of a chunk in the fusion of a run''s lists; for ragdb.why_not().';

-- What speaks for a chunk as evidence of a run's question, as ragdb.fuse() measures it.
create or replace function ragdb.evidence_of(r ragdb.run, id bigint) returns jsonb
language plpgsql volatile
set search_path from current
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(r.collection);
  -- a follow-up was measured by what it was condensed to: what the first list searched for
  asked text := coalesce((select s.query from ragdb.run_stage s where s.run_id = r.run_id and s.stage = 'retrieve' and s.name not like '%/%' order by s.step limit 1), r.question);
  model bigint := ragdb.run_model(r, c);
  vector real[] := (select v.v::real[] from ragdb.query_vector v
                     where v.model_id = model and v.asked_by = r.caller and v.text_hash = sha256(convert_to(asked, 'UTF8')));
begin
  if c.analyzer = 'external' then
    return pg_catalog.jsonb_build_object('note', 'the words of this collection are made by a program: evidence is not counted here');
  end if;
  return (
    select pg_catalog.jsonb_build_object('evidence', round(f.evidence::numeric, 3), 'similarity', round(f.similarity::numeric, 4), 'rare', f.rare,
             'evidence_floor', (select m.evidence_floor from ragdb.embedding_model m where m.model_id = model))
      from ragdb.fuse(pg_catalog.jsonb_build_object('chunk', pg_catalog.jsonb_build_array(id)), asked, r.collection,
                      case when vector is null then '{}' else pg_catalog.jsonb_build_object('vector', vector, 'model_id', model) end) f);
end
$function$;
comment on function ragdb.evidence_of(ragdb.run, bigint) is 'What speaks for a chunk as evidence of a run''s question: share of words, rare words, cosine and its floor.';

-- Whether a role reads a document now: yes, no, or "depends on ..." where its grants ask its own session.
create or replace function ragdb.role_reads(role text, document_id bigint) returns text
language plpgsql stable
set search_path from current
as $function$
declare
  g record;
  filter record;
  matches boolean;
  depends boolean := false;
begin
  if not exists (select from pg_roles x where x.rolname = role) then
    return 'is not known: there is no such role any more';
  end if;
  if has_function_privilege(role::name, 'ragdb.put_document(text, jsonb, jsonb)'::regprocedure, 'execute') then
    return 'yes';
  end if;
  for g in
    select x."where" from ragdb.collection_grant x
      join ragdb.document d on d.collection_id = x.collection_id
      left join pg_roles y on y.rolname = x.grantee
     where d.document_id = role_reads.document_id and (x.grantee = 'public' or pg_has_role(role::name, y.oid, 'usage'))
  loop
    if g."where"::text ~ '"(setting|filter)"' then
      depends := true;
      continue;
    end if;
    filter := ragdb.where_clause(g."where", 1);
    execute pg_catalog.format('select exists (select from ragdb.document d where d.document_id = $1 and %s)', filter.condition)
       into matches using document_id, filter.vals;
    if matches then
      return 'yes';
    end if;
  end loop;
  return case when depends then 'depends on settings or a live filter of its own session' else 'no' end;
end
$function$;
comment on function ragdb.role_reads(text, bigint) is 'Whether a role reads a document by its grants; for ragdb.why_not(), which tells it to those who read everything.';
