-- Every index of ragdb: its size, how often it was used since the counters were reset, and what is wrong with it.
--   select * from ragdb.index_health where problem is not null;
-- A model with more vectors than collection.exact_limit and no HNSW index is a row with no size: its searches compare
-- every vector. `ragdb embedder index` builds it.
create or replace view ragdb.index_health as
select c.relname::text as "table", x.relname::text as index, pg_relation_size(x.oid) as bytes,
       coalesce(s.idx_scan, 0) as scans, s.last_idx_scan as last_scan,
       case when not i.indisvalid or not i.indisready then
              case when exists (select from pg_stat_progress_create_index p where p.index_relid = x.oid) then 'is being built'
                   when x.relname like 'embedding\_hnsw\_%' then 'invalid, left by a build that did not end; run: ragdb embedder index'
                   else 'invalid; run: reindex index concurrently ragdb.' || quote_ident(x.relname) end end as problem
  from pg_index i
  join pg_class x on x.oid = i.indexrelid
  join pg_class c on c.oid = i.indrelid
  left join pg_stat_user_indexes s on s.indexrelid = x.oid
 where c.relnamespace = 'ragdb'::regnamespace
union all
select 'embedding', 'embedding_hnsw_' || m.model_id, null, 0, null,
       pg_catalog.format('model %s has more than %s vectors and no HNSW index: every vector is compared; run: ragdb embedder index', m.name, l.exact_limit)
  from ragdb.embedding_model m
 cross join lateral (select min(c.exact_limit) as exact_limit from ragdb.collection c where c.active_model_id = m.model_id) l
 where m.dims <= 4000
   -- counted no further than it matters
   and (select count(*) from (select from ragdb.embedding e where e.model_id = m.model_id limit l.exact_limit + 1) x) > l.exact_limit
   and not exists (select from pg_class x where x.relnamespace = 'ragdb'::regnamespace and x.relname = 'embedding_hnsw_' || m.model_id)
 order by 1, 2;
comment on view ragdb.index_health is 'Every index of ragdb with its size and use, and what is wrong with it: invalid, being built, or missing.';
comment on column ragdb.index_health.scans is 'how often it was used since the counters were reset';
comment on column ragdb.index_health.problem is 'what is wrong with it, and what to run; null: nothing';
