-- How fast documents become ready, by collection: those whose newest text became ready in the last minute and hour.
--   select * from ragdb.queue_rate;
create or replace view ragdb.queue_rate with (security_invoker = true) as
select c.name as collection,
       coalesce(r.last_minute, 0) as last_minute,
       coalesce(r.last_hour, 0) as last_hour,
       r.latest
  from ragdb.collection c
  left join (select d.collection_id,
                    count(*) filter (where d.ready_at > now() - interval '1 minute') as last_minute,
                    count(*) as last_hour,
                    max(d.ready_at) as latest
               from ragdb.document d
              where d.ready_at > now() - interval '1 hour'
              group by d.collection_id) r on r.collection_id = c.collection_id
 order by c.name;
comment on view ragdb.queue_rate is 'By collection: how many documents became ready in the last minute and in the last hour.';
comment on column ragdb.queue_rate.collection is 'the collection';
comment on column ragdb.queue_rate.last_minute is 'documents that became ready in the last minute';
comment on column ragdb.queue_rate.last_hour is 'documents that became ready in the last hour';
comment on column ragdb.queue_rate.latest is 'when the last of them became ready';
