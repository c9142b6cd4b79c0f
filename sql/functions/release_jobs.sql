-- The workers that hold jobs now, by the name they claimed with.
create or replace function ragdb.job_holders()
returns table (worker text)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select distinct j.leased_by from ragdb.job j where j.state = 'processing' order by 1
$function$;
comment on function ragdb.job_holders() is 'The workers that hold jobs now.';

-- Gives back the jobs of a worker that is known to be dead: they are due at once, instead of when their lease runs out.
-- Their attempts stay counted. Were it alive after all, its token is stale and its work is dropped. Returns how many.
create or replace function ragdb.release_jobs(worker text) returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
declare
  n integer;
begin
  with held as (
    select j.job_id
      from ragdb.job j join ragdb.document d using (document_id)
     where j.state = 'processing' and j.leased_by = worker
       for update of j, d skip locked),
  released as (
    update ragdb.job j
       set state = 'queued', lease_token = null, leased_until = null, leased_by = null, run_after = clock_timestamp()
      from held where j.job_id = held.job_id
    returning j.document_id)
  update ragdb.document d set ingest_state = 'queued' from released r where d.document_id = r.document_id;
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.release_jobs(text) is 'Gives back the jobs of a worker that is known to be dead; returns how many.';
