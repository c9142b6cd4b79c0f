-- What each evaluation run came to: the mean of every metric over the questions it counts for, with a 95 % interval.
--   select name, metric, mean, low, high, n from ragdb.eval_summary where eval_set = 'help' order by metric, mean desc;
-- low, high: mean -/+ 1.96 standard errors (normal approximation); `ragdb eval` has them by bootstrap.
create or replace view ragdb.eval_summary with (security_invoker = true) as
select s.name as eval_set, r.eval_run_id, r.name, r.collection, x.metric, count(*) as n, avg(x.value) as mean,
       avg(x.value) - 1.96 * coalesce(stddev_samp(x.value), 0) / sqrt(count(*)) as low,
       avg(x.value) + 1.96 * coalesce(stddev_samp(x.value), 0) / sqrt(count(*)) as high,
       r.started_at, r.finished_at
  from ragdb.eval_run r
  join ragdb.eval_set s on s.eval_set_id = r.eval_set_id
  join ragdb.eval_score x on x.eval_run_id = r.eval_run_id
 group by s.name, r.eval_run_id, x.metric;
comment on view ragdb.eval_summary is 'The mean of every metric of every evaluation run, with its interval.';
comment on column ragdb.eval_summary.n is 'questions that the metric counts for';
comment on column ragdb.eval_summary.low is 'lower end of the 95 % interval, by normal approximation';
comment on column ragdb.eval_summary.high is 'upper end of the 95 % interval';
