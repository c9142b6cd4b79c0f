-- The queue: one job a document. A claim (claim_jobs.sql) counts the attempt, gives a lease and a token; every later write carries the
-- token, and a stale one is refused. All times are the database's.

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

-- Makes the leases of all that a worker holds longer: its heartbeat. Returns how many it still holds.
create or replace function ragdb.extend_leases(worker text, lease interval default '5 minutes') returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  n integer;
begin
  -- one that another transaction has in hand is being written by this worker, which makes its lease longer too
  with held as (
    select j.job_id from ragdb.job j
     where j.state = 'processing' and j.leased_by = worker
     order by j.job_id
       for update skip locked)
  update ragdb.job j set leased_until = clock_timestamp() + lease from held where j.job_id = held.job_id;
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.extend_leases(text, interval) is 'Makes the leases of all jobs of a worker longer; returns how many it holds.';

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
  -- what has been stored stays: if its worker dies now, the next one goes on from here, and the attempt is given back
  update ragdb.job x set leased_until = clock_timestamp() + lease, suspect = false where x.job_id = j.job_id;
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
     set state = next_state, lease_token = null, leased_until = null, last_error = reason, suspect = true,
         run_after = clock_timestamp() + delay, failed_at = case when next_state = 'failed' then clock_timestamp() end
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
