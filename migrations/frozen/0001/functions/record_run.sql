-- Stores one traced question with its stages and citations; returns its id.
--   {"collection", "verb", "question", "where", "pipeline", "k", "outcome"?, "mode"?, "answer"?, "usage", "document_ids", "ms",
--    "stages": [{"step", "parent"?, "stage", "name", "query"?, "chunk_ids", "scores", "dropped", "note", "ms"}],
--    "citations": [{"number", "chunk_id", "document_id", "label", "uri", "heading_path", "start", "end", "page", "quote"}],
--    "claims": [{"start", "end", "numbers", "misquoted"}], "conversation"?, "error"?, "lazy"?, "eval_run_id"?,
--    "trial"?, "arm"?}
-- lazy: nobody waits until the trace is on the disk; a crash of the server may lose those of its last moments, and nothing
-- else. For a transaction of its own only: it holds for all that the transaction commits.
-- trial, arm: the trial that the question was part of, and its side there, control or treatment: both, or neither.
-- eval_run_id: the evaluation that asked; for who sees all runs, since the views of runs leave these out.
-- Returns null, and stores nothing, in a read-only transaction or on a standby.
-- Where a document that was shown to the reader is gone by now, neither answer nor quote is stored, nor what the stages noted of
-- texts: what ragdb.delete_document() would have blanked.
-- Until the transaction ends the documents that were shown are held FOR KEY SHARE: what deletes one waits, and blanks the
-- quotes that are stored here.
create or replace function ragdb.record_run(run jsonb) returns bigint
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  id bigint;
  shown bigint[] := array(select jsonb_array_elements_text(coalesce(run -> 'document_ids', '[]'))::bigint);
  read_from ragdb.collection;
  alive bigint[];
  problem text;
  whole boolean;
begin
  if current_setting('transaction_read_only')::boolean then
    return null;
  end if;
  if run ->> 'verb' is null or run ->> 'verb' not in ('search', 'ask') or num_nulls(run ->> 'question', run ->> 'pipeline', run ->> 'k', run ->> 'ms') > 0 then
    raise exception 'the run lacks its verb (search or ask), question, pipeline, k or ms' using errcode = 'RD004';
  end if;
  problem := case
    when jsonb_path_exists(run, '$.stages[*] ? (exists(@.dropped) && @.dropped.type() != "object" && @.dropped.type() != "null")')
      or jsonb_path_exists(run, 'lax $.stages[*].dropped.* ? (@.type() != "number")') then 'dropped of a stage is {reason: [chunk ids]}'
    when jsonb_path_exists(run, '$.usage.models[*] ? (@.type() != "object")') or jsonb_path_exists(
           run, '$.usage.models[*].keyvalue() ? (@.key != "stage" && @.key != "name" && @.key != "model" && @.value.type() != "number" && @.value.type() != "null")', silent => true)
      then 'usage.models has numbers beside stage, name and model'
    when jsonb_path_exists(run, '$.stages[*].ms ? (@.type() != "number")') or jsonb_typeof(run -> 'ms') <> 'number' then 'ms is a number'
    when octet_length(run ->> 'conversation') > 2000 then 'conversation has more than 2000 bytes'
    when num_nulls(run ->> 'trial', run ->> 'arm') = 1 or run ->> 'arm' not in ('control', 'treatment') or length(run ->> 'trial') not between 1 and 200
      then 'trial is a name of 1 to 200 characters, with an arm, control or treatment' end;
  if problem is not null then
    raise exception 'the run is not of the form that is stored: %', problem using errcode = 'RD004';
  end if;
  if run ->> 'eval_run_id' is not null and ragdb.reads_all_runs()
     and not exists (select from ragdb.eval_run r where r.eval_run_id = case when run ->> 'eval_run_id' ~ '^\d{1,18}$' then (run ->> 'eval_run_id')::bigint end) then
    raise exception 'there is no evaluation run %', left(run ->> 'eval_run_id', 80)
      using errcode = 'RD004', hint = 'It was deleted; the runs are in: select * from ragdb.eval_runs().';
  end if;
  if (run ->> 'lazy')::boolean then
    perform set_config('synchronous_commit', 'off', true);
  end if;
  read_from := ragdb.readable_collection(run ->> 'collection');
  begin
    alive := array(select d.document_id from ragdb.document d where d.document_id = any (ragdb.readable_documents(shown)) order by d.document_id for key share);
  exception when serialization_failure then
    -- a snapshot of the caller's, from before one of them was deleted; which one, it cannot see
    alive := '{}';
  end;
  whole := alive @> shown;

  insert into ragdb.run (collection, verb, question, "where", pipeline, k, conversation, outcome, error, mode, answer, usage, document_ids, caller, limits_hash, ms, eval_run_id, trial, arm)
  values (run ->> 'collection', run ->> 'verb', run ->> 'question', coalesce(run -> 'where', '{}'), run -> 'pipeline', (run ->> 'k')::integer,
          run ->> 'conversation', run ->> 'outcome', case when whole or run ->> 'error' is null then run ->> 'error' else 'removed with a document' end,
          run ->> 'mode', case when whole then run ->> 'answer' end,
          case when whole then coalesce(run -> 'usage', '{}') else coalesce(run -> 'usage', '{}') - 'embedder_failed' end,
          alive, ragdb.caller(), ragdb.limits_hash(ragdb.read_limits(read_from.collection_id)), (run ->> 'ms')::double precision,
          case when ragdb.reads_all_runs() then (run ->> 'eval_run_id')::bigint end, run ->> 'trial', run ->> 'arm')
  returning run_id into id;

  insert into ragdb.run_stage (run_id, step, parent, stage, name, query, chunk_ids, scores, dropped, note, ms)
  select id, s.step, s.parent, s.stage, s.name, case when whole then s.query end,
         array(select jsonb_array_elements_text(s.chunk_ids)::bigint), array(select jsonb_array_elements_text(s.scores)::double precision),
         coalesce(s.dropped, '{}'),
         case when whole or coalesce(s.note, '') = '' or s.stage in ('retrieve', 'fuse', 'freshen', 'expand', 'pack') then coalesce(s.note, '')
              else 'removed with a document' end, s.ms
    from jsonb_to_recordset(coalesce(run -> 'stages', '[]'))
      as s(step integer, parent integer, stage text, name text, query text, chunk_ids jsonb, scores jsonb, dropped jsonb, note text, ms double precision);

  insert into ragdb.citation (run_id, number, chunk_id, document_id, label, uri, heading_path, start_at, end_at, page, quote, purged)
  select id, c.number, c.chunk_id, c.document_id, c.label, c.uri, array(select jsonb_array_elements_text(c.heading_path)),
         c."start", c."end", c.page, case when c.document_id = any (alive) then c.quote end, not c.document_id = any (alive)
    from jsonb_to_recordset(coalesce(run -> 'citations', '[]'))
      as c(number integer, chunk_id bigint, document_id bigint, label text, uri text, heading_path jsonb, "start" integer, "end" integer, page integer, quote text);

  insert into ragdb.claim (run_id, ordinal, start_at, end_at, numbers, misquoted)
  select id, c.n, (c.value ->> 'start')::integer, (c.value ->> 'end')::integer,
         array(select jsonb_array_elements_text(coalesce(c.value -> 'numbers', '[]'))::integer), coalesce((c.value ->> 'misquoted')::integer, 0)
    from jsonb_array_elements(coalesce(run -> 'claims', '[]')) with ordinality as c(value, n);
  return id;
end
$function$;
comment on function ragdb.record_run(jsonb) is 'Stores one traced question with its stages and citations; returns the run''s id.';
