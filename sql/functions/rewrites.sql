-- What rewriters made of questions before, by role and for a while: a question asked again costs no call of a model.
-- Kept as {"queries": [{"text", "legs"}]}; given back is the list. `key` is what the result depends on (rewriter, model, prompt with the question), as text; its sha256 is stored.
create or replace function ragdb.known_rewrite(key text, lifetime interval default '7 days') returns jsonb
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  perform ragdb.refuse_maintenance();
  return (
    select r.queries from ragdb.rewrite r
     where r.asked_by = ragdb.caller() and r.key_hash = sha256(convert_to(key, 'UTF8')) and r.created_at > now() - lifetime);
end
$function$;
comment on function ragdb.known_rewrite(text, interval) is 'What a rewriter made of a question that this role asked before, null where there is nothing or it is too old.';

create or replace function ragdb.keep_rewrite(key text, queries jsonb) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
begin
  -- on a standby not even an INSERT of nothing is allowed
  if current_setting('transaction_read_only')::boolean then
    return;
  end if;
  perform ragdb.refuse_maintenance();
  insert into ragdb.rewrite as r (asked_by, key_hash, queries)
  values (ragdb.caller(), sha256(convert_to(key, 'UTF8')), queries -> 'queries')
  on conflict on constraint rewrite_pkey do update set queries = excluded.queries, created_at = now();
end
$function$;
comment on function ragdb.keep_rewrite(text, jsonb) is 'Keeps what a rewriter made of a question, for ragdb.known_rewrite().';
