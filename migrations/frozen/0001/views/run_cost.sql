-- What models were asked for the questions, by day: calls, those that failed, tokens as the servers count them, and cost
-- where the program was given prices.
--   select day, model, calls, cost from ragdb.run_cost where day > now() - interval '7 days';
create or replace view ragdb.run_cost with (security_invoker = true) as
select r.collection, date_trunc('day', r.started_at) as day, m.value ->> 'stage' as stage, m.value ->> 'model' as model,
       count(distinct r.run_id) as runs,
       sum(n.calls) as calls, sum(n.failed) as failed, sum(n.prompt_tokens) as prompt_tokens,
       sum(n.completion_tokens) as completion_tokens, sum(n.cost) as cost
  from ragdb.run r
 cross join lateral jsonb_array_elements(case when jsonb_typeof(r.usage -> 'models') = 'array' then r.usage -> 'models' else '[]' end) m
 cross join lateral (
   select sum(x.value::numeric) filter (where x.key = 'calls') as calls, sum(x.value::numeric) filter (where x.key = 'failed') as failed,
          sum(x.value::numeric) filter (where x.key = 'prompt_tokens') as prompt_tokens,
          sum(x.value::numeric) filter (where x.key = 'completion_tokens') as completion_tokens,
          sum(x.value::numeric) filter (where x.key = 'cost') as cost
     from jsonb_each(case when jsonb_typeof(m.value) = 'object' then m.value else '{}' end) x where jsonb_typeof(x.value) = 'number') n
 where r.eval_run_id is null
 group by r.collection, date_trunc('day', r.started_at), m.value ->> 'stage', m.value ->> 'model'
 order by day desc, r.collection, stage, model;
comment on view ragdb.run_cost is 'Calls of models, tokens and cost by day, collection, stage and model.';
comment on column ragdb.run_cost.calls is 'calls of the model, those that failed too';
comment on column ragdb.run_cost.prompt_tokens is 'as the servers count them';
comment on column ragdb.run_cost.cost is 'in the currency of the programs prices; null: it was given none';
