-- What a reader thought of an answer: 1 good, 0 neither, -1 bad. Told again, it replaces what the same reader said before.
--   select ragdb.give_feedback(42, -1, 'the limit is 60,000 since May', who => 'user-7');
create or replace function ragdb.give_feedback(run_id bigint, rating integer, comment text default null, who text default null) returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
#variable_conflict use_variable
begin
  if rating is null or rating not in (-1, 0, 1) then
    raise exception 'the rating is %; it is 1 (good), 0 or -1 (bad)', coalesce(rating::text, 'null') using errcode = 'RD004';
  end if;
  if length(comment) > 10000 or octet_length(who) > 2000 then
    raise exception 'the comment has % characters, 10000 are kept; who has % bytes, 2000 are kept', coalesce(length(comment), 0), coalesce(octet_length(who), 0) using errcode = 'RD004';
  end if;
  if not exists (select from ragdb.run r
                  where r.run_id = give_feedback.run_id and ragdb.reads_run(r.collection, r.caller, r.limits_hash, r.document_ids)) then
    raise exception 'run % does not exist', run_id
      using errcode = 'RD009', hint = 'Look at: select run_id, question from ragdb.list_runs()';
  end if;
  insert into ragdb.feedback as f (run_id, rating, comment, who, given_by)
  values (run_id, rating, comment, who, ragdb.caller())
  on conflict on constraint feedback_run_id_given_by_who_key
    do update set rating = excluded.rating, comment = excluded.comment, created_at = now();
end
$function$;
comment on function ragdb.give_feedback(bigint, integer, text, text) is 'Keeps what a reader thought of an answer: 1, 0 or -1, with a comment.';
