-- The collections at a glance: what is in each, what waits, how far its statistics are from what is there now.
--   select * from ragdb.overview;
-- Counts documents and vectors: seconds on millions of them. `stats_drift`: by which share the number of chunks has
-- moved since the document frequencies were counted; ragdb.refresh_lexical_stats() brings it to 0. `pivot_drift`: how far
-- the average length of its chunks is from pivot_length, which BM25 was weighed by; see ragdb.reweigh() above about 0.5.
create or replace view ragdb.overview as
select c.name as collection, m.name as model, m.dims, c.text_search_config, c.analyzer,
       d.documents, d.active, d.archived, d.drafts, d.waiting, d.failed, d.chunks, e.vectors,
       d.newest as newest_document, s.refreshed_at as stats_refreshed_at,
       round((abs(d.chunks - s.n_chunks) / greatest(s.n_chunks, 1)::double precision)::numeric, 3) as stats_drift,
       round((abs(s.average_length - c.pivot_length) / c.pivot_length)::numeric, 3) as pivot_drift
  from ragdb.collection c
  left join ragdb.embedding_model m on m.model_id = c.active_model_id
  left join ragdb.lexical_stats s on s.collection_id = c.collection_id
 cross join lateral (
   select count(*) as documents,
          count(*) filter (where x.status = 'active') as active,
          count(*) filter (where x.status = 'archived') as archived,
          count(*) filter (where x.status = 'draft') as drafts,
          count(*) filter (where x.ingest_state in ('queued', 'processing')) as waiting,
          count(*) filter (where x.ingest_state = 'failed') as failed,
          coalesce(sum(x.n_chunks), 0)::bigint as chunks,
          max(x.ready_at) as newest
     from ragdb.document x where x.collection_id = c.collection_id) d
 cross join lateral (
   select count(*) as vectors
     from ragdb.document x
     join ragdb.chunk k on k.document_id = x.document_id
     join ragdb.embedding v on v.chunk_id = k.chunk_id and v.model_id = c.active_model_id
    where x.collection_id = c.collection_id) e
 order by c.name;
comment on view ragdb.overview is 'One row a collection: model, documents by state, chunks, vectors, age and drift of its statistics.';
comment on column ragdb.overview.waiting is 'documents that are queued or being worked on';
comment on column ragdb.overview.stats_drift is 'share by which the number of chunks moved since document frequencies were counted';
comment on column ragdb.overview.pivot_drift is 'how far the average length of chunks is from pivot_length, as a share of it';
