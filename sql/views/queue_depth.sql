-- The queue by collection: what waits, what is being worked on, what failed, and for how long the oldest has waited.
--   select * from ragdb.queue_depth;
-- `due` may be claimed now; `lost` is held by a worker whose lease has run out, so another will take it.
create or replace view ragdb.queue_depth with (security_invoker = true) as
select c.name as collection,
       count(*) filter (where j.state = 'queued') as waiting,
       count(*) filter (where j.state = 'queued' and j.run_after <= now()) as due,
       count(*) filter (where j.state = 'processing') as processing,
       count(*) filter (where j.state = 'processing' and j.leased_until < now()) as lost,
       count(*) filter (where j.state = 'failed') as failed,
       now() - min(j.created_at) filter (where j.state <> 'failed') as oldest
  from ragdb.collection c
  left join ragdb.document d on d.collection_id = c.collection_id and d.ingest_state <> 'ready'
  left join ragdb.job j on j.document_id = d.document_id
 group by c.name
 order by c.name;
comment on view ragdb.queue_depth is 'By collection: documents that wait, are worked on or failed, and the age of the oldest that waits.';
comment on column ragdb.queue_depth.due is 'may be claimed now';
comment on column ragdb.queue_depth.lost is 'held by a worker whose lease has run out; another will take it';
comment on column ragdb.queue_depth.oldest is 'how long the oldest has waited that did not fail';
