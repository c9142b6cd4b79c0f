-- Takes up to `how_many` jobs that are due, or one whose lease has run out. Locks that others hold are passed over.
--
-- Fair between collections: it begins with the first one after `after_collection` (whom the caller served last) that has
-- a job that is due, and goes on to the next ones while there is room, so that a long queue keeps no short one waiting.
-- `without`: collections that the caller cannot work for.
--
-- A job that lost its worker once is claimed alone from then on: one that kills its worker takes no other with it. Such a
-- death counts as an attempt only where the job was alone and nothing was stored (job.suspect): else it tells nothing
-- about the document, and the attempt is given back. So a killer fails after max_attempts, and what was near it does not.
create or replace function ragdb.claim_jobs(
  worker text, how_many integer default 1, lease interval default '5 minutes', only_collection text default null,
  only_document bigint default null, after_collection bigint default null, without bigint[] default '{}')
returns table (job_id bigint, document_id bigint, collection text, uri text, revision integer, attempts integer, lease_token uuid,
               collection_id bigint, is_cut boolean)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  moment timestamptz := clock_timestamp();              -- one moment: a volatile function is no index condition
  only_id bigint;
  ids bigint[] := '{}';
  fresh bigint[];
  lone bigint;
  next_id bigint;
  alone boolean := false;
begin
  if how_many < 1 or how_many is null then
    return;
  end if;
  if only_collection is not null then
    select c.collection_id into only_id from ragdb.collection c where c.name = only_collection;
    if not found then
      return;
    end if;
  end if;

  -- a job whose worker died on its last attempt is failed here, or it would be claimed for ever
  with dead as (
    select j.job_id
      from ragdb.job j join ragdb.document d using (document_id)
     where j.state = 'processing' and j.leased_until < moment and j.attempts >= j.max_attempts and j.suspect
       for update of j, d skip locked)
  select array_agg(dead.job_id) into fresh from dead;
  if fresh is not null then
    perform ragdb.bury_jobs(fresh);
  end if;

  if only_document is not null then
    select array_agg(x.job_id) into ids
      from (select j.job_id
              from ragdb.job j join ragdb.document d using (document_id)
             where j.document_id = only_document and (only_id is null or j.collection_id = only_id)
               and (j.state = 'queued' and j.run_after <= moment or j.state = 'processing' and j.leased_until < moment)
               for update of j, d skip locked) x;
  else
    select array_agg(x.job_id) into ids
      from (select j.job_id
              from ragdb.job j join ragdb.document d using (document_id)
             where j.state = 'processing' and j.leased_until < moment
               and (only_id is null or j.collection_id = only_id) and not j.collection_id = any(without)
             order by j.leased_until, j.job_id
             limit 1
               for update of j, d skip locked) x;
    alone := ids is not null;
    ids := coalesce(ids, '{}');
    -- A skip scan: of each collection the first entry of the index, which has its earliest moment. Those behind
    -- after_collection first, then the others.
    for next_id in
      select only_id where only_id is not null
      union all
      select ring.collection_id
        from (values (coalesce(after_collection, -1), 9223372036854775807), (-1, coalesce(after_collection, -1))) part(above, upto)
       cross join lateral (
         with recursive first as (
           (select j.collection_id, j.run_after from ragdb.job j
             where j.state = 'queued' and j.collection_id > part.above order by j.collection_id, j.run_after, j.job_id limit 1)
           union all
           select n.collection_id, n.run_after
             from first f
            cross join lateral (
              select j.collection_id, j.run_after from ragdb.job j
               where j.state = 'queued' and j.collection_id > f.collection_id order by j.collection_id, j.run_after, j.job_id limit 1) n
            where f.collection_id < part.upto)
         select f.collection_id from first f
          where f.run_after <= moment and f.collection_id <= part.upto and not f.collection_id = any(without)) ring
       where only_id is null
    loop
      exit when alone or cardinality(ids) >= how_many;
      with due as (
        select j.job_id, j.lost
          from ragdb.job j join ragdb.document d using (document_id)
         where j.state = 'queued' and j.collection_id = next_id and j.run_after <= moment
         order by j.run_after, j.job_id
         limit how_many - cardinality(ids)
           for update of j, d skip locked)
      select coalesce(array_agg(due.job_id) filter (where due.lost = 0), '{}'), (array_agg(due.job_id) filter (where due.lost > 0))[1]
        into fresh, lone from due;
      if lone is not null and ids = '{}' then
        ids := array[lone];
        alone := true;
      else
        ids := ids || fresh;
      end if;
    end loop;
  end if;

  return query
  with claimed as (
    update ragdb.job j
       set state = 'processing', lease_token = gen_random_uuid(), leased_until = clock_timestamp() + lease, leased_by = worker,
           attempts = j.attempts + case when j.state = 'processing' and not j.suspect then 0 else 1 end,
           lost = j.lost + case when j.state = 'processing' then 1 else 0 end,
           suspect = cardinality(ids) = 1
     where j.job_id = any(ids)
    returning j.*),
  marked as (
    update ragdb.document d set ingest_state = 'processing' from claimed j where d.document_id = j.document_id)
  select j.job_id, j.document_id, c.name, d.uri, j.revision, j.attempts, j.lease_token, c.collection_id, r.chunking is not null
    from claimed j
    join ragdb.document d using (document_id)
    join ragdb.collection c on c.collection_id = j.collection_id
    join ragdb.document_revision r on r.document_id = j.document_id and r.revision = j.revision
   order by array_position(ids, j.job_id);
end
$function$;
comment on function ragdb.claim_jobs(text, integer, interval, text, bigint, bigint, bigint[]) is
  'Takes jobs that are due, with a lease and a token for each; goes from collection to collection.';

-- Fails jobs, which the caller has locked, whose worker stopped on their last attempt.
create or replace function ragdb.bury_jobs(ids bigint[]) returns void
language sql
set search_path from current
as $function$
  with failed as (
    update ragdb.job j
       set state = 'failed', lease_token = null, leased_until = null, suspect = true, lost = j.lost + 1, failed_at = clock_timestamp(),
           last_error = pg_catalog.format('worker %s stopped without a word on attempt %s of %s, with this document alone', j.leased_by, j.attempts, j.max_attempts)
     where j.job_id = any(ids)
    returning j.document_id, j.last_error)
  update ragdb.document d set ingest_state = 'failed', last_error = f.last_error
    from failed f where d.document_id = f.document_id
$function$;
comment on function ragdb.bury_jobs(bigint[]) is 'Fails locked jobs whose worker stopped without a word on their last attempt.';
