-- The queue: one job a document. A claim counts the attempt, gives a lease and a token; every later write carries the
-- token, and a stale one is refused. All times are the database's.

-- Takes up to `how_many` jobs that are due or whose lease has run out. Locks that others hold are passed over.
create or replace function ragdb.claim_jobs(worker text, how_many integer default 1, lease interval default '5 minutes', only_collection text default null, only_document bigint default null)
returns table (job_id bigint, document_id bigint, collection text, uri text, revision integer, attempts integer, lease_token uuid)
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
begin
  -- a job whose worker died on its last attempt is failed here, or it would be claimed for ever
  with dead as (
    select j.job_id, j.document_id
      from ragdb.job j join ragdb.document d using (document_id)
     where j.state = 'processing' and j.leased_until < clock_timestamp() and j.attempts >= j.max_attempts
       for update of j, d skip locked),
  failed as (
    update ragdb.job j
       set state = 'failed', lease_token = null, leased_until = null,
           last_error = pg_catalog.format('worker %s stopped without a word on attempt %s of %s', j.leased_by, j.attempts, j.max_attempts)
      from dead where j.job_id = dead.job_id
    returning j.document_id, j.last_error)
  update ragdb.document d set ingest_state = 'failed', last_error = f.last_error
    from failed f where d.document_id = f.document_id;

  return query
  with due as (
    select j.job_id
      from ragdb.job j
      join ragdb.document d using (document_id)
      join ragdb.collection c using (collection_id)
     -- so written, each condition is taken for the wide one that it mostly is, and the index gives the next job
     where (j.state = 'queued' and j.run_after <= clock_timestamp() or j.state = 'processing' and j.leased_until < clock_timestamp())
       and j.state <> 'failed'
       and (only_collection is null or c.name = only_collection) and (only_document is null or j.document_id = only_document)
     order by j.run_after, j.job_id
     limit how_many
       for update of j, d skip locked),
  claimed as (
    update ragdb.job j
       set state = 'processing', attempts = j.attempts + 1, lease_token = gen_random_uuid(),
           leased_until = clock_timestamp() + lease, leased_by = worker
      from due where j.job_id = due.job_id
    returning j.*),
  marked as (
    update ragdb.document d set ingest_state = 'processing' from claimed j where d.document_id = j.document_id)
  select j.job_id, j.document_id, c.name, d.uri, j.revision, j.attempts, j.lease_token
    from claimed j join ragdb.document d using (document_id) join ragdb.collection c using (collection_id)
   order by j.job_id;
end
$function$;
comment on function ragdb.claim_jobs(text, integer, interval, text, bigint) is 'Takes jobs that are due, with a lease and a token for each.';

-- Refuses a token that is not the job's current one: the lease ran out and another worker has the job, or a newer
-- text replaced it. Holds the document, then the job, until the transaction ends.
create or replace function ragdb.hold_job(job_id bigint, lease_token uuid) returns ragdb.job
language plpgsql
set search_path from current
as $function$
declare
  j ragdb.job;
begin
  perform from ragdb.document d
   where d.document_id = (select x.document_id from ragdb.job x where x.job_id = hold_job.job_id) for update;
  select * into j from ragdb.job x where x.job_id = hold_job.job_id and x.lease_token = hold_job.lease_token for update;
  if not found then
    raise exception 'job % is no longer held with this token', hold_job.job_id
      using errcode = 'RD008', hint = 'Its lease ran out or a newer text replaced it; drop the work.';
  end if;
  return j;
end
$function$;
comment on function ragdb.hold_job(bigint, uuid) is 'Locks a job for a write by the holder of its token; a stale token is refused.';

-- Makes the lease longer while a slow model works.
create or replace function ragdb.extend_lease(job_id bigint, lease_token uuid, lease interval default '5 minutes') returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
begin
  update ragdb.job j set leased_until = clock_timestamp() + lease
   where j.job_id = extend_lease.job_id and j.lease_token = extend_lease.lease_token;
  if not found then
    raise exception 'job % is no longer held with this token', extend_lease.job_id
      using errcode = 'RD008', hint = 'Its lease ran out or a newer text replaced it; drop the work.';
  end if;
end
$function$;
comment on function ragdb.extend_lease(bigint, uuid, interval) is 'Makes the lease of a job longer; a stale token is refused.';

-- The pending text of a claimed job, and whether it is cut already.
create or replace function ragdb.job_text(job_id bigint, with_content boolean default true)
returns table (title text, content text, is_cut boolean, media_type text, pages integer[])
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  select r.title, case when with_content then r.content end, r.chunking is not null, r.media_type, r.pages
    from ragdb.job j join ragdb.document_revision r on r.document_id = j.document_id and r.revision = j.revision
   where j.job_id = job_text.job_id
$function$;
comment on function ragdb.job_text(bigint, boolean) is 'The text that a job is to make ready.';

-- Stores vectors: `numbers` holds them one after the other, dims each, in the order of chunk_ids.
-- The lease grows with every batch.
-- `model` is who made them: where the collection has another active one by now, they are refused.
create or replace function ragdb.store_vectors(job_id bigint, lease_token uuid, chunk_ids bigint[], numbers double precision[], lease interval default '5 minutes', model text default null)
returns void
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  j ragdb.job := ragdb.hold_job(job_id, lease_token);
  m ragdb.embedding_model;
begin
  select e.* into strict m
    from ragdb.document d join ragdb.collection c using (collection_id) join ragdb.embedding_model e on e.model_id = c.active_model_id
   where d.document_id = j.document_id;
  if model <> m.name then
    raise exception 'these vectors are of "%", but "%" is active by now', model, m.name
      using errcode = 'RD010', hint = 'Embed the document again, with the active model.';
  end if;
  if cardinality(numbers) <> cardinality(chunk_ids) * m.dims then
    raise exception '% numbers for % chunks; model "%" has % dimensions', cardinality(numbers), cardinality(chunk_ids), m.name, m.dims
      using errcode = 'RD003', hint = 'Look at what the embedder returned.';
  end if;
  insert into ragdb.embedding (chunk_id, model_id, dims, v)
  select u.id, m.model_id, m.dims, ragdb.checked_vector(numbers[(u.n - 1) * m.dims + 1 : u.n * m.dims], m.dims, m.name)
    from unnest(chunk_ids) with ordinality u(id, n)
    join ragdb.chunk k on k.chunk_id = u.id and k.document_id = j.document_id
  on conflict (chunk_id, model_id) do update set v = excluded.v;
  perform ragdb.extend_lease(j.job_id, j.lease_token, lease);
end
$function$;
comment on function ragdb.store_vectors(bigint, uuid, bigint[], double precision[], interval, text) is 'Stores vectors of a claimed job''s chunks; a stale token is refused.';

create or replace function ragdb.finish_job(job_id bigint, lease_token uuid) returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  j ragdb.job := ragdb.hold_job(job_id, lease_token);
begin
  return ragdb.make_ready(j.document_id, j.revision);
end
$function$;
comment on function ragdb.finish_job(bigint, uuid) is 'Makes a claimed job''s revision ready and removes the job; a stale token is refused.';

-- A failed attempt: back into the queue after `delay`, or, where it is permanent or was the last one, failed with its reason.
create or replace function ragdb.fail_job(job_id bigint, lease_token uuid, reason text, permanent boolean, delay interval default '0') returns text
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  j ragdb.job := ragdb.hold_job(job_id, lease_token);
  next_state text := case when permanent or j.attempts >= j.max_attempts then 'failed' else 'queued' end;
begin
  update ragdb.job x
     set state = next_state, lease_token = null, leased_until = null, last_error = reason, run_after = clock_timestamp() + delay
   where x.job_id = j.job_id;
  update ragdb.document d
     set ingest_state = next_state, last_error = reason
   where d.document_id = j.document_id;
  return next_state;
end
$function$;
comment on function ragdb.fail_job(bigint, uuid, text, boolean, interval) is 'Records a failed attempt of a claimed job; returns queued or failed.';

-- Sections and chunks of a claimed job whose text came without them: {"sections": [...], "chunks": [...], "more"?: true}.
-- Of a long text in several calls, see ragdb.write_chunks().
create or replace function ragdb.cut_job(job_id bigint, lease_token uuid, chunking text, pieces jsonb) returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  j ragdb.job := ragdb.hold_job(job_id, lease_token);
begin
  return (select w.written
            from ragdb.write_chunks(j.document_id, j.revision, chunking, coalesce(pieces -> 'sections', '[]'), pieces -> 'chunks',
                                    coalesce((pieces ->> 'more')::boolean, false)) w);
end
$function$;
comment on function ragdb.cut_job(bigint, uuid, text, jsonb) is 'Writes sections and chunks of a claimed job; a stale token is refused.';

-- The chunks of a revision in order.
create or replace function ragdb.revision_chunks(document_id bigint, revision integer)
returns table (ordinal integer, chunk_id bigint)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  select p.ordinal, p.chunk_id from ragdb.chunk_place p
   where p.document_id = revision_chunks.document_id and p.revision = revision_chunks.revision
   order by p.ordinal
$function$;
comment on function ragdb.revision_chunks(bigint, integer) is 'The chunks of a revision, in order.';

create or replace function ragdb.document_state(document_id bigint) returns text
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
as $function$
  select coalesce((select d.ingest_state from ragdb.document d where d.document_id = document_state.document_id), 'deleted')
$function$;
comment on function ragdb.document_state(bigint) is 'ingest_state of a document, or deleted.';
