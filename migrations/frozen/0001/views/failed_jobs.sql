-- Documents that were given up, and those that failed and wait to be tried again, each with its reason. Reads the whole queue.
--   select uri, reason from ragdb.failed_jobs where state = 'failed';      select ragdb.retry_jobs('help', 'article/17');
create or replace view ragdb.failed_jobs with (security_invoker = true) as
select c.name as collection,
       d.uri,
       j.state,
       j.attempts,
       j.max_attempts,
       j.last_error as reason,
       j.failed_at,
       case when j.state = 'queued' then j.run_after end as next_attempt,
       j.lost,
       j.job_id
  from ragdb.job j
  join ragdb.document d using (document_id)
  join ragdb.collection c on c.collection_id = j.collection_id
 where j.state = 'failed' or j.state = 'queued' and j.last_error is not null
 order by j.state, j.job_id;
comment on view ragdb.failed_jobs is 'Documents that were given up or wait to be tried again, with the reason.';
comment on column ragdb.failed_jobs.collection is 'the collection';
comment on column ragdb.failed_jobs.uri is 'the document';
comment on column ragdb.failed_jobs.state is 'failed: given up; queued: will be tried again';
comment on column ragdb.failed_jobs.attempts is 'attempts so far';
comment on column ragdb.failed_jobs.max_attempts is 'after this many it is given up';
comment on column ragdb.failed_jobs.reason is 'why the last attempt failed';
comment on column ragdb.failed_jobs.failed_at is 'when it was given up';
comment on column ragdb.failed_jobs.next_attempt is 'not before this moment';
comment on column ragdb.failed_jobs.lost is 'how often a worker stopped without a word while it had it';
comment on column ragdb.failed_jobs.job_id is 'key of ragdb.job';
