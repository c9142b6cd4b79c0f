-- What rewriters made of questions before, by role and for a while: a question asked again costs no call of a model.
-- Kept as {"queries": [{"text", "legs"?, "origin"?}]}, further keys as they are; given back is the list. `key` is what the
-- result depends on (rewriter, model, prompt with the question), as text; its sha256 is stored.
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

-- Waits for nobody: where another transaction has the same key in hand, it keeps, and this one does not.
create or replace function ragdb.keep_rewrite(key text, queries jsonb) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
set lock_timeout = '5ms'
as $function$
declare
  list jsonb := queries -> 'queries';
  reason text;
begin
  reason := case
    when key is null then 'key is null'
    when jsonb_typeof(queries) is distinct from 'object' then pg_catalog.format('queries is %s', coalesce(jsonb_typeof(queries), 'null'))
    when jsonb_typeof(list) is distinct from 'array' then pg_catalog.format('queries has "queries" as %s', coalesce(jsonb_typeof(list), 'nothing'))
    when jsonb_array_length(list) > 50 then pg_catalog.format('%s queries, 50 are kept at most', jsonb_array_length(list))
    when length(list::text) > 100000 then pg_catalog.format('the queries have %s characters, 100000 are kept at most', length(list::text))
    else (
      select pg_catalog.format('query %s is %s', q.n, left(q.value::text, 80))
        from jsonb_array_elements(list) with ordinality as q(value, n)
       where jsonb_typeof(q.value) <> 'object'
          or jsonb_typeof(q.value -> 'text') is distinct from 'string'
          or coalesce(jsonb_typeof(q.value -> 'origin'), 'null') not in ('string', 'null')
          or coalesce(jsonb_typeof(q.value -> 'legs'), 'null') not in ('array', 'null')
          or jsonb_path_exists(q.value, 'strict $.legs[*] ? (@.type() != "string")', silent => true)
       order by q.n limit 1) end;
  if reason is not null then
    raise exception 'keep_rewrite: %', reason
      using errcode = 'RD004', hint = 'Write it like {"queries": [{"text": "another question", "legs": null, "origin": "multi"}]}.';
  end if;
  -- on a standby not even an INSERT of nothing is allowed
  if current_setting('transaction_read_only')::boolean then
    return;
  end if;
  perform ragdb.refuse_maintenance();
  insert into ragdb.rewrite as r (asked_by, key_hash, queries)
  values (ragdb.caller(), sha256(convert_to(key, 'UTF8')), list)
  on conflict on constraint rewrite_pkey do update set queries = excluded.queries, created_at = now();
exception when lock_not_available or serialization_failure then
  -- somebody else writes this key, or did after this transaction's snapshot
end
$function$;
comment on function ragdb.keep_rewrite(text, jsonb) is
  'Keeps what a rewriter made of a question, for ragdb.known_rewrite(); where another transaction writes the same, it keeps nothing and does not wait.';
