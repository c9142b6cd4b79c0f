-- The stored questions that the caller sees, newest first: an auditor or writer all, others those of their own role; in
-- pages by `before`, a run's id; without those of evaluations. For readers, who have no right on the table.
--   select run_id, question, outcome from ragdb.list_runs('help');
-- Planned anew for each collection: a plan that is kept takes them for equally large, and where one has nearly all runs
-- it walks through these for the few of another.
create or replace function ragdb.list_runs(collection text default null, how_many integer default 50, before bigint default null)
returns table (run_id bigint, collection_name text, verb text, question text, "where" jsonb, outcome text, mode text, answer text, caller text,
               started_at timestamptz, ms double precision)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
#variable_conflict use_column
declare
  me text := ragdb.caller();
  ids bigint[] := '{}';
  found bigint[];
  upto bigint := coalesce(before, 9223372036854775807);
  c record;
begin
  if how_many is null or how_many < 0 then
    raise exception 'how_many is %; it is at least 0', coalesce(how_many::text, 'null') using errcode = 'RD004';
  end if;
  if not ragdb.reads_all_runs() then
    -- by collection what the caller may read of it now, so that the index finds the runs made under the same limits
    for c in
      select x.name, ragdb.limits_hash(l.limits) as hash, coalesce(l.limits::text ~ '"filter"', false) as filtered
        from ragdb.collection x
       cross join lateral (select ragdb.read_limits(x.collection_id) as limits offset 0) l
       where (list_runs.collection is null or x.name = list_runs.collection) and l.limits is distinct from '[]'
    loop
      -- under a live filter nobody is shown a run without documents (ragdb.reads_run): these are not even asked about
      execute pg_catalog.format(
        $sql$select array(select r.run_id from ragdb.run r
                           where r.caller = $1 and r.collection = $2 and r.limits_hash %s and r.run_id < $4 and r.eval_run_id is null %s
                             and ragdb.reads_run(r.collection, r.caller, r.limits_hash, r.document_ids)
                           order by r.run_id desc limit $5)$sql$,
        case when c.hash is null then 'is null' else '= $3' end, case when c.filtered then $sql$and r.document_ids <> '{}'$sql$ end)
        into found using me, c.name, c.hash, upto, how_many;
      ids := ids || found;
    end loop;
    return query
    select r.run_id, r.collection, r.verb, r.question, r."where", r.outcome, r.mode, r.answer, r.caller, r.started_at, r.ms
      from ragdb.run r where r.run_id = any (ids) order by r.run_id desc limit how_many;
    return;
  end if;
  if list_runs.collection is not null then
    return query execute
      $sql$select r.run_id, r.collection, r.verb, r.question, r."where", r.outcome, r.mode, r.answer, r.caller, r.started_at, r.ms
             from ragdb.run r where r.collection = $1 and r.run_id < $2 and r.eval_run_id is null order by r.run_id desc limit $3$sql$
      using list_runs.collection, upto, how_many;
    return;
  end if;
  return query
  select r.run_id, r.collection, r.verb, r.question, r."where", r.outcome, r.mode, r.answer, r.caller, r.started_at, r.ms
    from ragdb.run r where r.run_id < upto and r.eval_run_id is null order by r.run_id desc limit how_many;
end
$function$;
comment on function ragdb.list_runs(text, integer, bigint) is 'The stored questions that the caller sees, newest first, in pages by run id.';

create or replace function ragdb.run_citations(run_id bigint)
returns table (number integer, label text, uri text, heading_path text[], start_at integer, end_at integer, page integer, quote text, purged boolean)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select c.number, c.label, c.uri, c.heading_path, c.start_at, c.end_at, c.page, c.quote, c.purged
    from ragdb.run r
    join ragdb.citation c on c.run_id = r.run_id
   where r.run_id = run_citations.run_id and ragdb.reads_run(r.collection, r.caller, r.limits_hash, r.document_ids)
   order by c.number
$function$;
comment on function ragdb.run_citations(bigint) is 'The citations of a run that the caller sees.';
