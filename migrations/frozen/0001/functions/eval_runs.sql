-- Runs of an evaluation: begun, or taken up again, filled result by result, read.

-- The run to fill: the newest one of this fingerprint (`finished` says whether all is there), else, or with again, a new one.
--   {"eval_set", "name", "collection", "pipeline": {...}, "settings": {...}, "fingerprint", "again"?: true, "gate"?: true}
create or replace function ragdb.start_eval_run(run jsonb)
returns table (eval_run_id bigint, finished boolean, results bigint)
language plpgsql rows 1
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  s ragdb.eval_set := ragdb.known_eval_set(run ->> 'eval_set');
begin
  if num_nulls(run ->> 'name', run ->> 'collection', run ->> 'fingerprint') > 0
     or jsonb_typeof(run -> 'pipeline') is distinct from 'object' or jsonb_typeof(run -> 'settings') not in ('object', 'null') then
    raise exception 'the evaluation run lacks its name, collection, fingerprint or pipeline, or settings is no object' using errcode = 'RD004';
  end if;
  -- one after another: of two that begin the same at once, the second goes on with the run of the first
  perform from ragdb.eval_set x where x.eval_set_id = s.eval_set_id for no key update;
  if not coalesce((run ->> 'again')::boolean, false) then
    return query
    select r.eval_run_id, r.finished_at is not null, (select count(*) from ragdb.eval_result x where x.eval_run_id = r.eval_run_id)
      from ragdb.eval_run r
     where r.eval_set_id = s.eval_set_id and r.fingerprint = run ->> 'fingerprint'
     order by r.eval_run_id desc limit 1;
    if found then
      -- what only a gate had asked is a run by its name once somebody asks for it; a gate takes no name away
      update ragdb.eval_run r set name = run ->> 'name'
       where not coalesce((run ->> 'gate')::boolean, false) and r.name <> run ->> 'name'
         and r.eval_run_id = (select max(x.eval_run_id) from ragdb.eval_run x
                               where x.eval_set_id = s.eval_set_id and x.fingerprint = run ->> 'fingerprint');
      return;
    end if;
  end if;
  return query
  insert into ragdb.eval_run as r (eval_set_id, name, collection, pipeline, settings, fingerprint)
  values (s.eval_set_id, run ->> 'name', run ->> 'collection', run -> 'pipeline', coalesce(nullif(run -> 'settings', 'null'), '{}'), run ->> 'fingerprint')
  returning r.eval_run_id, false, 0::bigint;
end
$function$;
comment on function ragdb.start_eval_run(jsonb) is 'Begins an evaluation run, or returns the one that is the same: to go on with, or finished.';

-- Stores what became of one question, in the place of an error; a result that is there stays, whoever else fills the run:
--   {"eval_question_id", "run_id"?, "chunk_ids", "uris", "statuses", "funnel", "outcome"?, "answer"?, "document_ids"?, "error"?, "ms",
--    "stage_ms", "cost"?, "scores": {metric: value},
--    "verdicts": [{"metric", "step", "judge", "prompt_hash", "temperature", "raw"?, "value"?, "broken"?, "usage"}]}
-- Where a document that the answer was made from is gone by now, neither answer nor what a judge wrote is stored, nor an error.
create or replace function ragdb.record_eval_result(eval_run_id bigint, result jsonb) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  question bigint := (result ->> 'eval_question_id')::bigint;
  shown bigint[] := array(select distinct jsonb_array_elements_text(coalesce(result -> 'document_ids', '[]'))::bigint);
  alive bigint[];
  whole boolean;
begin
  -- the set before the run, as ragdb.delete_eval_set() takes them
  perform from ragdb.eval_set s join ragdb.eval_run r on r.eval_set_id = s.eval_set_id
    where r.eval_run_id = record_eval_result.eval_run_id for key share of s;
  perform from ragdb.eval_run r join ragdb.eval_question q on q.eval_set_id = r.eval_set_id
    where r.eval_run_id = record_eval_result.eval_run_id and q.eval_question_id = (result ->> 'eval_question_id')::bigint for key share of r;
  if not found then
    raise exception 'evaluation run % has no question %', coalesce(record_eval_result.eval_run_id::text, 'null'), coalesce(question::text, 'null')
      using errcode = 'RD004', hint = 'One of them was deleted, or they are of two sets; the runs are in: select * from ragdb.eval_runs().';
  end if;
  if jsonb_typeof(result -> 'ms') is distinct from 'number'
     or jsonb_array_length(coalesce(result -> 'uris', '[]')) <> jsonb_array_length(coalesce(result -> 'statuses', '[]'))
     or jsonb_array_length(coalesce(result -> 'uris', '[]')) <> jsonb_array_length(coalesce(result -> 'chunk_ids', '[]')) then
    raise exception 'the result lacks its ms, or chunk_ids, uris and statuses are not equally long' using errcode = 'RD004';
  end if;
  -- held until the end: what deletes one waits, and blanks what is stored here
  alive := array(select d.document_id from ragdb.document d where d.document_id = any (shown) order by d.document_id for key share);
  whole := alive @> shown;
  insert into ragdb.eval_result as e
         (eval_run_id, eval_question_id, run_id, chunk_ids, uris, statuses, funnel, outcome, answer, document_ids, error, ms, stage_ms, cost)
  values (record_eval_result.eval_run_id, question, (result ->> 'run_id')::bigint,
          array(select jsonb_array_elements_text(coalesce(result -> 'chunk_ids', '[]'))::bigint),
          array(select jsonb_array_elements_text(coalesce(result -> 'uris', '[]'))),
          array(select jsonb_array_elements_text(coalesce(result -> 'statuses', '[]'))),
          coalesce(result -> 'funnel', '{}'), result ->> 'outcome', case when whole then result ->> 'answer' end, shown,
          case when whole or result ->> 'error' is null then result ->> 'error' else 'removed with a document' end, (result ->> 'ms')::double precision, coalesce(result -> 'stage_ms', '{}'), (result ->> 'cost')::double precision)
  on conflict on constraint eval_result_pkey do update
     set run_id = excluded.run_id, chunk_ids = excluded.chunk_ids, uris = excluded.uris, statuses = excluded.statuses,
         funnel = excluded.funnel, outcome = excluded.outcome, answer = excluded.answer, document_ids = excluded.document_ids,
         error = excluded.error, ms = excluded.ms, stage_ms = excluded.stage_ms, cost = excluded.cost, created_at = now()
   where e.error is not null;
  if not found then
    return;
  end if;
  delete from ragdb.eval_score x where x.eval_run_id = record_eval_result.eval_run_id and x.eval_question_id = question;
  delete from ragdb.eval_verdict x where x.eval_run_id = record_eval_result.eval_run_id and x.eval_question_id = question;
  insert into ragdb.eval_score (eval_run_id, eval_question_id, metric, value)
  select record_eval_result.eval_run_id, question, s.key, s.value::double precision
    from jsonb_each_text(coalesce(result -> 'scores', '{}')) s where s.value is not null;
  insert into ragdb.eval_verdict (eval_run_id, eval_question_id, metric, step, judge, prompt_hash, temperature, raw, value, broken, usage)
  select record_eval_result.eval_run_id, question, v.metric, coalesce(v.step, ''), v.judge, v.prompt_hash, v.temperature,
         case when whole then v.raw end, v.value, case when whole or v.broken is null then v.broken else 'removed with a document' end, coalesce(v.usage, '{}')
    from jsonb_to_recordset(coalesce(result -> 'verdicts', '[]'))
      as v(metric text, step text, judge text, prompt_hash text, temperature double precision, raw text, value double precision, broken text, usage jsonb);
end
$function$;
comment on function ragdb.record_eval_result(bigint, jsonb) is 'Stores what a pipeline made of one question of an evaluation, with its scores and verdicts.';

-- Stores metrics that were computed from stored results: {"scores": {eval_question_id: {metric: value}}}.
create or replace function ragdb.put_eval_scores(eval_run_id bigint, scores jsonb) returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  n bigint;
  wrong text;
begin
  select q.key into wrong from jsonb_each(scores -> 'scores') q
   where not exists (select from ragdb.eval_result e where e.eval_run_id = put_eval_scores.eval_run_id and e.eval_question_id = case when q.key ~ '^\d{1,18}$' then q.key::bigint end) limit 1;
  if wrong is not null then
    raise exception 'evaluation run % has no result of question %', coalesce(put_eval_scores.eval_run_id::text, 'null'), wrong
      using errcode = 'RD004', hint = 'It was deleted; the runs are in: select * from ragdb.eval_runs().';
  end if;
  insert into ragdb.eval_score as x (eval_run_id, eval_question_id, metric, value)
  select put_eval_scores.eval_run_id, q.key::bigint, m.key, m.value::double precision
    from jsonb_each(scores -> 'scores') q cross join lateral jsonb_each_text(q.value) m
   where m.value is not null
  on conflict on constraint eval_score_pkey do update set value = excluded.value where x.value <> excluded.value;
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.put_eval_scores(bigint, jsonb) is 'Stores metrics of the results of an evaluation run; returns how many are new.';

-- Says that all questions of a run were asked, and keeps what was counted on the way in its settings.
create or replace function ragdb.finish_eval_run(eval_run_id bigint, counted jsonb default '{}') returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
begin
  if jsonb_typeof(counted) is distinct from 'object' then
    raise exception 'counted is no object' using errcode = 'RD004';
  end if;
  update ragdb.eval_run r set finished_at = clock_timestamp(), settings = r.settings || counted
   where r.eval_run_id = finish_eval_run.eval_run_id;
  if not found then
    raise exception 'there is no evaluation run %', coalesce(finish_eval_run.eval_run_id::text, 'null')
      using errcode = 'RD004', hint = 'It was deleted; the runs are in: select * from ragdb.eval_runs().';
  end if;
end
$function$;
comment on function ragdb.finish_eval_run(bigint, jsonb) is 'Says that an evaluation run is whole; counted goes into its settings.';

-- The runs, newest first: of a set, of a name, or the one of an id.
create or replace function ragdb.eval_runs(eval_set text default null, only_name text default null, only_run bigint default null, how_many integer default 50)
returns table (eval_run_id bigint, eval_set text, name text, collection text, pipeline jsonb, settings jsonb, fingerprint text,
               started_at timestamptz, finished_at timestamptz, started_by text, results bigint)
language sql stable rows 50
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select r.eval_run_id, s.name, r.name, r.collection, r.pipeline, r.settings, r.fingerprint, r.started_at, r.finished_at, r.started_by,
         (select count(*) from ragdb.eval_result x where x.eval_run_id = r.eval_run_id)
    from ragdb.eval_run r
    join ragdb.eval_set s on s.eval_set_id = r.eval_set_id
   where (eval_runs.eval_set is null or s.name = eval_runs.eval_set)
     and (only_name is null or r.name = only_name)
     and (only_run is null or r.eval_run_id = only_run)
   order by r.eval_run_id desc
   limit how_many
$function$;
comment on function ragdb.eval_runs(text, text, bigint, integer) is 'Evaluation runs, newest first, of a set, a name or an id.';

-- What a run made of each question, by key.
create or replace function ragdb.eval_results(eval_run_id bigint)
returns table (key text, eval_question_id bigint, run_id bigint, chunk_ids bigint[], uris text[], statuses text[], funnel jsonb, outcome text,
               answer text, document_ids bigint[], error text, ms double precision, stage_ms jsonb, cost double precision, scores jsonb)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select q.key, e.eval_question_id, e.run_id, e.chunk_ids, e.uris, e.statuses, e.funnel, e.outcome, e.answer, e.document_ids, e.error, e.ms, e.stage_ms, e.cost,
         coalesce((select jsonb_object_agg(x.metric, x.value) from ragdb.eval_score x
                    where x.eval_run_id = e.eval_run_id and x.eval_question_id = e.eval_question_id), '{}')
    from ragdb.eval_result e
    join ragdb.eval_question q on q.eval_question_id = e.eval_question_id
   where e.eval_run_id = eval_results.eval_run_id
   order by q.key
$function$;
comment on function ragdb.eval_results(bigint) is 'The results of an evaluation run by key, each with its scores.';

-- The verdicts of a run by metric: questions that it was asked for, and those at which a verdict could not be used.
create or replace function ragdb.eval_verdicts(eval_run_id bigint)
returns table (metric text, asked bigint, broken bigint)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select v.metric, count(distinct v.eval_question_id), count(distinct v.eval_question_id) filter (where v.broken is not null)
    from ragdb.eval_verdict v
   where v.eval_run_id = eval_verdicts.eval_run_id group by v.metric order by v.metric
$function$;
comment on function ragdb.eval_verdicts(bigint) is 'By metric of a judge: for how many questions it was asked, and at how many its verdict could not be used.';

-- Deletes a run with its results and traces.
create or replace function ragdb.delete_eval_run(eval_run_id bigint) returns bigint
language sql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  with gone as (delete from ragdb.eval_run r where r.eval_run_id = delete_eval_run.eval_run_id returning 1) select count(*) from gone
$function$;
comment on function ragdb.delete_eval_run(bigint) is 'Deletes an evaluation run with its results and the traces of its questions; returns how many runs.';
