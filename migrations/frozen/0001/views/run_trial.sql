-- What became of the questions of a trial (a live A/B) in each of its arms, with 95 % intervals of the shares.
--   select trial, arm, questions, answered_share, answered_low, answered_high from ragdb.run_trial where trial = 'rerank';
-- questions: those that wanted an answer from documents: greetings and readers who left before the end do not count.
-- Intervals are Wilson's (1927): (h + z²/2 ± z √(h (n - h) / n + z²/4)) / (n + z²), h of n, z = 1.96. They take the questions for
-- independent: where few conversations have many turns each, they are too narrow.
create or replace view ragdb.run_trial with (security_invoker = true) as
with counted as (
  select r.trial, r.collection, r.arm, count(*) as runs, min(r.started_at) as since, max(r.started_at) as until,
         count(*) filter (where r.outcome in ('answered', 'not_in_documents', 'nothing_retrieved', 'llm_failed')) as questions,
         count(*) filter (where r.outcome = 'answered') as answered,
         count(*) filter (where r.outcome = 'llm_failed') as llm_failed,
         count(*) filter (where r.outcome = 'cancelled') as cancelled,
         coalesce(sum(f.good), 0)::bigint as good, coalesce(sum(f.bad), 0)::bigint as bad,
         percentile_cont(0.5) within group (order by r.ms) as p50_ms,
         percentile_cont(0.95) within group (order by r.ms) as p95_ms,
         avg(case when jsonb_typeof(r.usage -> 'cost') = 'number' then (r.usage -> 'cost')::numeric end) as cost
    from ragdb.run r
    left join (select b.run_id, count(*) filter (where b.rating > 0) as good, count(*) filter (where b.rating < 0) as bad
                 from ragdb.feedback b group by b.run_id) f on f.run_id = r.run_id
   where r.trial is not null and r.eval_run_id is null
   group by r.trial, r.collection, r.arm)
select c.trial, c.collection, c.arm, c.runs, c.questions, c.answered,
       round(a.share::numeric, 4) as answered_share, round(a.low::numeric, 4) as answered_low, round(a.high::numeric, 4) as answered_high,
       c.llm_failed, c.cancelled, c.good, c.bad,
       round(g.share::numeric, 4) as good_share, round(g.low::numeric, 4) as good_low, round(g.high::numeric, 4) as good_high,
       round(c.p50_ms::numeric, 1) as p50_ms, round(c.p95_ms::numeric, 1) as p95_ms, c.cost as mean_cost, c.since, c.until
  from counted c
 cross join lateral (select c.answered::double precision as h, nullif(c.questions, 0)::double precision as n) x
 cross join lateral (
   select x.h / x.n as share,
          (x.h + 3.841458820694124 / 2 - 1.959963984540054 * sqrt(x.h * (x.n - x.h) / x.n + 3.841458820694124 / 4)) / (x.n + 3.841458820694124) as low,
          (x.h + 3.841458820694124 / 2 + 1.959963984540054 * sqrt(x.h * (x.n - x.h) / x.n + 3.841458820694124 / 4)) / (x.n + 3.841458820694124) as high) a
 cross join lateral (select c.good::double precision as h, nullif(c.good + c.bad, 0)::double precision as n) y
 cross join lateral (
   select y.h / y.n as share,
          (y.h + 3.841458820694124 / 2 - 1.959963984540054 * sqrt(y.h * (y.n - y.h) / y.n + 3.841458820694124 / 4)) / (y.n + 3.841458820694124) as low,
          (y.h + 3.841458820694124 / 2 + 1.959963984540054 * sqrt(y.h * (y.n - y.h) / y.n + 3.841458820694124 / 4)) / (y.n + 3.841458820694124) as high) g
 order by c.trial, c.collection, c.arm;
comment on view ragdb.run_trial is 'What became of the questions of each trial by arm: answered, feedback, time, cost, with 95 % intervals (Wilson 1927).';
comment on column ragdb.run_trial.arm is 'control: the pipeline as before; treatment: the other one';
comment on column ragdb.run_trial.questions is 'runs that wanted an answer from documents: no greetings, none that the reader left before its end';
comment on column ragdb.run_trial.answered_share is 'answered of questions, 0 to 1';
comment on column ragdb.run_trial.answered_low is 'lower end of its 95 % interval';
comment on column ragdb.run_trial.answered_high is 'upper end of its 95 % interval';
comment on column ragdb.run_trial.good is 'readers who found the answer good';
comment on column ragdb.run_trial.bad is 'readers who found it bad';
comment on column ragdb.run_trial.good_share is 'good of good and bad, 0 to 1; null: no reader said anything';
comment on column ragdb.run_trial.good_low is 'lower end of its 95 % interval';
comment on column ragdb.run_trial.good_high is 'upper end of its 95 % interval';
comment on column ragdb.run_trial.p50_ms is 'median, in milliseconds';
comment on column ragdb.run_trial.p95_ms is '95th percentile, in milliseconds';
comment on column ragdb.run_trial.mean_cost is 'of a run, in the currency of the programs'' prices; null: it was given none';
comment on column ragdb.run_trial.since is 'its first question';
comment on column ragdb.run_trial.until is 'its last question';
