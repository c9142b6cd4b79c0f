-- What models were asked for the questions, by day: calls, those that failed, tokens as the servers count them, and cost
-- where the program was given prices.
--   select day, model, calls, cost from ragdb.run_cost where day > now() - interval '7 days';
create or replace view ragdb.run_cost with (security_invoker = true) as
select r.collection, date_trunc('day', r.started_at) as day, m.value ->> 'stage' as stage, m.value ->> 'model' as model,
       count(distinct r.run_id) as runs,
       sum((m.value ->> 'calls')::bigint) as calls, sum((m.value ->> 'failed')::bigint) as failed,
       sum((m.value ->> 'prompt_tokens')::bigint) as prompt_tokens, sum((m.value ->> 'completion_tokens')::bigint) as completion_tokens,
       sum((m.value ->> 'cost')::numeric) as cost
  from ragdb.run r
 cross join lateral jsonb_array_elements(case when jsonb_typeof(r.usage -> 'models') = 'array' then r.usage -> 'models' else '[]' end) m
 group by r.collection, date_trunc('day', r.started_at), m.value ->> 'stage', m.value ->> 'model'
 order by day desc, r.collection, stage, model;
comment on view ragdb.run_cost is 'Calls of models, tokens and cost by day, collection, stage and model.';
comment on column ragdb.run_cost.calls is 'calls of the model, those that failed too';
comment on column ragdb.run_cost.prompt_tokens is 'as the servers count them';
comment on column ragdb.run_cost.cost is 'in the currency of the programs prices; null: it was given none';
