-- The queue by collection: what waits, what is being worked on, what failed, and for how long the oldest has waited.
--   select * from ragdb.queue_depth;
-- `due` may be claimed now; `retrying` failed at least once and waits for its next attempt; `lost` is held by a worker whose
-- lease has run out, so another will take it.
create or replace view ragdb.queue_depth with (security_invoker = true) as
select c.name as collection,
       count(*) filter (where j.state = 'queued') as waiting,
       count(*) filter (where j.state = 'queued' and j.run_after <= now()) as due,
       count(*) filter (where j.state = 'queued' and j.run_after > now()) as retrying,
       count(*) filter (where j.state = 'processing') as processing,
       count(*) filter (where j.state = 'processing' and j.leased_until < now()) as lost,
       count(*) filter (where j.state = 'failed') as failed,
       now() - min(j.created_at) filter (where j.state <> 'failed') as oldest
  from ragdb.collection c
  left join ragdb.job j on j.collection_id = c.collection_id
 group by c.name
 order by c.name;
comment on view ragdb.queue_depth is 'By collection: documents that wait, are worked on or failed, and the age of the oldest that waits.';
comment on column ragdb.queue_depth.collection is 'the collection';
comment on column ragdb.queue_depth.waiting is 'in the queue: due and retrying';
comment on column ragdb.queue_depth.due is 'may be claimed now';
comment on column ragdb.queue_depth.retrying is 'wait for their next attempt after a failed one';
comment on column ragdb.queue_depth.processing is 'a worker has them';
comment on column ragdb.queue_depth.lost is 'held by a worker whose lease has run out; another will take it';
comment on column ragdb.queue_depth.failed is 'given up; ragdb.failed_jobs has the reasons';
comment on column ragdb.queue_depth.oldest is 'how long the oldest has waited that did not fail';
