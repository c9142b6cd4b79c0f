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

-- Gives back the jobs of a worker: they are due at once, instead of when their lease runs out. Returns how many.
-- reason `ended`: the worker gives them back itself, because it is told to end; their attempts do not count.
-- `outage`: it gives them back itself, because the server was away meanwhile. Had one of them made the server crash, it would do
-- so again: the attempts count, and from the second one on it is as with `dead`.
-- `dead`: it is known to be gone. Its jobs count as lost, and the attempt counts where the job was its worker's only one and
-- nothing was stored (job.suspect); on the last attempt it fails. Were the worker alive after all, its token is stale and
-- its work is dropped.
create or replace function ragdb.release_jobs(worker text, reason text default 'dead') returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  held bigint[];
  last_ones bigint[];
  collections bigint[];
begin
  if reason is null or reason not in ('ended', 'outage', 'dead') then
    raise exception 'reason is "%"', reason using errcode = 'RD004', hint = 'It is ended, outage or dead.';
  end if;
  select array_agg(x.job_id), array_agg(x.job_id) filter (where reason <> 'ended' and x.suspect and x.attempts >= x.max_attempts)
    into held, last_ones
    from (select j.job_id, j.suspect, j.attempts, j.max_attempts
            from ragdb.job j join ragdb.document d using (document_id)
           where j.state = 'processing' and j.leased_by = worker
             for update of j, d skip locked) x;
  if last_ones is not null then
    perform ragdb.bury_jobs(last_ones);
  end if;
  with released as (
    update ragdb.job j
       set state = 'queued', lease_token = null, leased_until = null, leased_by = null, run_after = clock_timestamp(), suspect = true,
           attempts = j.attempts - case when reason = 'outage' and j.attempts = 1 then 0 when reason = 'ended' or not j.suspect then 1 else 0 end,
           lost = j.lost + case when reason = 'dead' or reason = 'outage' and j.attempts > 1 then 1 else 0 end
     where j.job_id = any(held) and j.state = 'processing'
    returning j.document_id, j.collection_id),
  marked as (
    update ragdb.document d set ingest_state = 'queued' from released r where d.document_id = r.document_id)
  select array_agg(distinct r.collection_id) into collections from released r;
  perform ragdb.wake_workers(c.name) from ragdb.collection c where c.collection_id = any(collections);
  return coalesce(cardinality(held), 0);
end
$function$;
comment on function ragdb.release_jobs(text, text) is 'Gives back the jobs of a worker that ends or is known to be dead; returns how many.';

-- Gives back one claimed job that this worker cannot do: its attempt does not count. A stale token is refused.
create or replace function ragdb.release_job(job_id bigint, lease_token uuid, delay interval default '0') returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  j ragdb.job := ragdb.hold_job(job_id, lease_token);
begin
  update ragdb.job x
     set state = 'queued', lease_token = null, leased_until = null, leased_by = null, suspect = true, attempts = x.attempts - 1,
         run_after = clock_timestamp() + delay
   where x.job_id = j.job_id;
  update ragdb.document d set ingest_state = 'queued' where d.document_id = j.document_id;
end
$function$;
comment on function ragdb.release_job(bigint, uuid, interval) is 'Gives back a claimed job, its attempt not counted; a stale token is refused.';

-- Documents that failed, and those that wait to be tried again, are due now, with all their attempts; one document or all of a
-- collection (of every collection, where none is named). What another transaction has in hand is passed over. Returns how many.
--   select ragdb.retry_jobs('help');    select ragdb.retry_jobs('help', 'article/17');
create or replace function ragdb.retry_jobs(collection text default null, uri text default null) returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection;
  only_document bigint;
  collections bigint[];
  n integer;
begin
  if collection is not null then
    c := ragdb.known_collection(collection);
  elsif uri is not null then
    raise exception 'the document "%" is named, but no collection', uri using errcode = 'RD004',
      hint = 'select ragdb.retry_jobs(''help'', ''article/17'')';
  end if;
  if uri is not null then
    select d.document_id into only_document from ragdb.document d where d.collection_id = c.collection_id and d.uri = retry_jobs.uri;
    if not found then
      return 0;
    end if;
  end if;
  with bad as (
    select j.job_id
      from ragdb.job j join ragdb.document d using (document_id)
     where (j.state = 'failed' or j.state = 'queued' and j.run_after > clock_timestamp())
       and (c.collection_id is null or j.collection_id = c.collection_id)
       and (only_document is null or j.document_id = only_document)
       for update of j, d skip locked),
  again as (
    update ragdb.job j
       set state = 'queued', attempts = 0, lost = 0, run_after = clock_timestamp(), last_error = null, failed_at = null
      from bad where j.job_id = bad.job_id
    returning j.document_id, j.collection_id),
  marked as (
    update ragdb.document d set ingest_state = 'queued', last_error = null from again a where d.document_id = a.document_id)
  select count(*), array_agg(distinct a.collection_id) into n, collections from again a;
  perform ragdb.wake_workers(x.name) from ragdb.collection x where x.collection_id = any(collections);
  return n;
end
$function$;
comment on function ragdb.retry_jobs(text, text) is 'Makes failed documents due again, with all their attempts; returns how many.';
