-- Keeps the vector of a question, so that the same question from psql, or asked again by the same role, needs no embedder.
-- The one that is there stays, and its age counts from when it was made: ragdb.prune() then bounds how long vectors live
-- on of a model that was changed under its name, also those of questions that are asked every day.
-- Waits for nobody: where another transaction has the same question in hand, it keeps, and this one does not.
create or replace function ragdb.keep_query_vector(question text, model text, numbers double precision[]) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
set lock_timeout = '5ms'
as $function$
begin
  -- on a standby not even an INSERT of nothing is allowed
  if current_setting('transaction_read_only')::boolean then
    return;
  end if;
  insert into ragdb.query_vector (model_id, asked_by, text_hash, v)
  select m.model_id, ragdb.caller(), sha256(convert_to(question, 'UTF8')), ragdb.checked_vector(numbers, m.dims, m.name)
    from ragdb.embedding_model m
   where m.name = model
     and (ragdb.reads_all() or exists (select from ragdb.vector_set s
                                        where s.model_id = m.model_id and ragdb.read_limits(s.collection_id) is distinct from '[]'))
  on conflict on constraint query_vector_pkey do nothing;
exception when lock_not_available or serialization_failure then
  -- somebody else writes this vector, or did after this transaction's snapshot
end
$function$;
comment on function ragdb.keep_query_vector(text, text, double precision[]) is
  'Keeps the vector of a question for who asks it again; where another transaction writes the same, it keeps nothing and does not wait.';

-- The vector kept for a question that this role asked, null where there is none.
create or replace function ragdb.known_query_vector(question text, model_id bigint) returns double precision[]
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  perform ragdb.refuse_maintenance();
  return (
    select v.v::real[]::double precision[]
      from ragdb.query_vector v
     where v.model_id = known_query_vector.model_id and v.asked_by = ragdb.caller() and v.text_hash = sha256(convert_to(question, 'UTF8')));
end
$function$;
comment on function ragdb.known_query_vector(text, bigint) is 'The vector kept for a question, null where there is none.';
