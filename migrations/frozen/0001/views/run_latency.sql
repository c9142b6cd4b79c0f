-- How long each stage of the questions took, by hour: median, 95th and 99th percentile, slowest, in milliseconds.
--   select * from ragdb.run_latency where collection = 'help' and hour > now() - interval '1 day';
-- The row with stage `all` is the whole question. With a condition on `hour` the stages of those runs are read;
-- without one those of all runs: seconds for 100,000.
create or replace view ragdb.run_latency with (security_invoker = true) as
select r.collection, date_trunc('hour', r.started_at) as hour, r.verb, x.stage, x.name, count(*) as runs,
       round(percentile_cont(0.5) within group (order by x.ms)::numeric, 1) as p50_ms,
       round(percentile_cont(0.95) within group (order by x.ms)::numeric, 1) as p95_ms,
       round(percentile_cont(0.99) within group (order by x.ms)::numeric, 1) as p99_ms,
       round(max(x.ms)::numeric, 1) as max_ms
  from ragdb.run r
 cross join lateral (
   select 'all' as stage, '' as name, r.ms
   union all
   select s.stage, s.name, s.ms from ragdb.run_stage s where s.run_id = r.run_id) x
 where r.eval_run_id is null
 group by r.collection, date_trunc('hour', r.started_at), r.verb, x.stage, x.name
 order by hour desc, r.collection, r.verb, x.stage, x.name;
comment on view ragdb.run_latency is 'Time of each stage of the questions by hour: median, 95th and 99th percentile, slowest, in milliseconds.';
comment on column ragdb.run_latency.hour is 'when the questions came, cut to the hour';
comment on column ragdb.run_latency.stage is 'a stage, or all: the whole question';
comment on column ragdb.run_latency.name is 'the leg or adapter';
comment on column ragdb.run_latency.runs is 'how many times the stage ran';
comment on column ragdb.run_latency.p50_ms is 'median, in milliseconds';
comment on column ragdb.run_latency.p95_ms is '95th percentile, in milliseconds';
comment on column ragdb.run_latency.p99_ms is '99th percentile, in milliseconds';
comment on column ragdb.run_latency.max_ms is 'slowest, in milliseconds';
