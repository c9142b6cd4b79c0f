-- Deletes what is old of that which only grows: runs that began before now() - `runs` (null: none), with their stages and
-- citations, and rewritten questions and vectors of questions made before now() - `caches`; at most `batch` rows of each,
-- oldest first, so that no call holds many rows for long. Repeat it until every count is 0:
--   select sum(deleted) from ragdb.prune(runs => '90 days');
-- Rows that somebody else has in hand are passed over, and come next time.
create or replace function ragdb.prune(runs interval default null, caches interval default '30 days', batch integer default 5000)
returns table (what text, deleted bigint)
language plpgsql rows 3
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
begin
  if batch is null or batch < 1 or runs < '0' or caches < '0' then
    raise exception 'prune: runs is %, caches is %, batch is %', coalesce(runs::text, 'null'), coalesce(caches::text, 'null'), coalesce(batch::text, 'null')
      using errcode = 'RD004', hint = 'Ages are at least 0, a batch is at least 1. Write it like prune(runs => ''90 days'').';
  end if;
  -- by ctid: a row that is locked stays where it is, and no plan reads the table
  what := 'run';
  delete from ragdb.run d
   where d.ctid = any (array(select r.ctid from ragdb.run r where r.started_at < now() - runs
                              order by r.started_at limit batch for update skip locked));
  get diagnostics deleted = row_count;
  return next;
  what := 'rewrite';
  delete from ragdb.rewrite d
   where d.ctid = any (array(select r.ctid from ragdb.rewrite r where r.created_at < now() - caches
                              order by r.created_at limit batch for update skip locked));
  get diagnostics deleted = row_count;
  return next;
  what := 'query_vector';
  delete from ragdb.query_vector d
   where d.ctid = any (array(select q.ctid from ragdb.query_vector q where q.created_at < now() - caches
                              order by q.created_at limit batch for update skip locked));
  get diagnostics deleted = row_count;
  return next;
end
$function$;
comment on function ragdb.prune(interval, interval, integer) is
  'Deletes old runs and cached rewrites and vectors of questions, a batch of each; call it, from cron, until every count is 0.';
