-- What was said in a conversation of the caller's, oldest first: of its last `how_many` turns that have an answer still, among
-- its newest hundred. document_ids: whose text was shown there, and in the turns before it that it was answered from.
--   select question, answer from ragdb.turns('chat-17', 'help');
create or replace function ragdb.turns(conversation text, collection text default 'default', how_many integer default 3)
returns table (run_id bigint, question text, answer text, outcome text, started_at timestamptz, document_ids bigint[])
language plpgsql stable rows 3
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
#variable_conflict use_column
declare
  me text := ragdb.caller();
  -- what the caller reads of the collection now: turns from when that was something else are not even looked at
  hash bytea := ragdb.limits_hash(ragdb.read_limits((select c.collection_id from ragdb.collection c where c.name = turns.collection)));
begin
  if how_many is null or how_many < 0 then
    raise exception 'how_many is %; it is at least 0', coalesce(how_many::text, 'null') using errcode = 'RD004';
  end if;
  return query
  select t.run_id, t.question, t.answer, t.outcome, t.started_at, t.document_ids
    from (select r.run_id, r.question, r.answer, r.outcome, r.started_at, r.document_ids
            from (select x.*
                    from ragdb.run x
                   where x.conversation = turns.conversation and x.caller = me and x.collection = turns.collection
                     and x.limits_hash is not distinct from hash
                   order by x.run_id desc
                   limit 100) r
           where r.answer is not null and r.outcome not in ('llm_failed', 'cancelled')
             and ragdb.reads_run(r.collection, r.caller, r.limits_hash, r.document_ids)
           order by r.run_id desc
           limit how_many) t
   order by t.run_id;
end
$function$;
comment on function ragdb.turns(text, text, integer) is 'The last turns of a conversation of the caller''s, oldest first: question and answer.';
