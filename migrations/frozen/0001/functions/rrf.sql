-- Reciprocal Rank Fusion: the sum over all lists of weight / (k + rank); Cormack, Clarke and Büttcher 2009.
-- For hand-written SQL: select id, sum(ragdb.rrf(rank)) ... group by id.
-- Without a fixed search_path, so that it is inlined: a body in standard SQL is bound to its operators when it is made.
create or replace function ragdb.rrf(rank bigint, weight double precision default 1, k integer default 60) returns double precision
language sql immutable parallel safe
return weight / (k + rank);
comment on function ragdb.rrf(bigint, double precision, integer) is 'One term of Reciprocal Rank Fusion: weight / (k + rank), rank from 1.';

-- Lists of chunk ids, best first, to one ranking:
--   select * from ragdb.rrf_fuse('{"lexical": [7, 8, 9], "semantic": [9, 7]}', '{"semantic": 2}');
-- `weights`: by list, 1 where not given. `ranks` tells the rank in each list. An id twice in a list counts once, at
-- its better rank. Terms are summed in a fixed order: a float sum in another order would break ties at random.
create or replace function ragdb.rrf_fuse(lists jsonb, weights jsonb default '{}', k integer default 60, top integer default null)
returns table (chunk_id bigint, score double precision, ranks jsonb)
language plpgsql immutable parallel safe rows 100
set search_path from current
as $function$
declare
  bad record;
begin
  if jsonb_typeof(lists) is distinct from 'object' or jsonb_typeof(weights) is distinct from 'object' then
    raise exception 'rrf_fuse takes objects: lists is %, weights is %', coalesce(jsonb_typeof(lists), 'null'), coalesce(jsonb_typeof(weights), 'null')
      using errcode = 'RD004', hint = 'Write it like rrf_fuse(''{"lexical": [7, 8], "semantic": [8]}'', ''{"semantic": 2}'').';
  end if;
  if k is null or k < 0 or top < 0 then
    raise exception 'rrf_fuse: k is %, top is %; both are at least 0', k, top using errcode = 'RD004';
  end if;
  for bad in
    select e.key, e.value from jsonb_each(lists) e where jsonb_typeof(e.value) <> 'array'
    union all
    select e.key, i.value from jsonb_each(lists) e, jsonb_array_elements(case jsonb_typeof(e.value) when 'array' then e.value else '[]' end) i
     where jsonb_typeof(i.value) <> 'number'
        or (i.value)::numeric <> trunc((i.value)::numeric) or abs((i.value)::numeric) > 9223372036854775807
    union all
    select e.key, e.value from jsonb_each(weights) e where jsonb_typeof(e.value) <> 'number' or (e.value)::numeric < 0 or (e.value)::numeric > 1000000
    limit 1
  loop
    raise exception 'rrf_fuse: "%" has %', bad.key, left(bad.value::text, 80)
      using errcode = 'RD004', hint = 'A list is an array of chunk ids, a weight a number from 0 to 1000000.';
  end loop;

  return query
  with term as (
    -- by the number, not its text: 7 and 7.0 are one id
    select distinct on (l.key, i.value::numeric) l.key as list, i.value::numeric::bigint as id, i.rank,
           ragdb.rrf(i.rank, coalesce((weights ->> l.key)::double precision, 1), k) as s
      from jsonb_each(lists) l, jsonb_array_elements_text(l.value) with ordinality i(value, rank)
     order by l.key, i.value::numeric, i.rank)
  select t.id, sum(t.s order by t.s), jsonb_object_agg(t.list, t.rank)
    from term t
   group by t.id
   order by sum(t.s order by t.s) desc, t.id
   limit top;
end
$function$;
comment on function ragdb.rrf_fuse(jsonb, jsonb, integer, integer) is
  'Reciprocal Rank Fusion of lists of chunk ids, {"name": [ids, best first]}: score = sum of weight / (k + rank), ties by id.';

-- The same for many settings at once, to find the best: [{"weights": {"semantic": 2}, "rrf_k": 60, "candidates": 50}, ...], of
-- which each cuts the lists to its `candidates` first (all of them where it names none). One row a setting, with its order alone:
--   select * from ragdb.rrf_sweep('{"lexical": [7, 8, 9], "semantic": [9, 7]}', '[{"rrf_k": 10}, {"weights": {"semantic": 2}}]');
create or replace function ragdb.rrf_sweep(lists jsonb, settings jsonb)
returns table (setting integer, chunk_ids bigint[])
language plpgsql immutable parallel safe rows 100
set search_path from current
as $function$
declare
  bad jsonb;
begin
  if jsonb_typeof(settings) is distinct from 'array' then
    raise exception 'rrf_sweep: settings is %, not an array', coalesce(jsonb_typeof(settings), 'null')
      using errcode = 'RD004', hint = 'Write it like [{"weights": {"semantic": 2}, "rrf_k": 60, "candidates": 50}].';
  end if;
  select s.value into bad
    from jsonb_array_elements(settings) s
   where jsonb_typeof(s.value) <> 'object'
      or s.value - '{weights,rrf_k,candidates}'::text[] <> '{}'
      or jsonb_typeof(s.value -> 'weights') <> 'object'
      or s.value ->> 'rrf_k' !~ '^\d{1,9}$' or s.value ->> 'candidates' !~ '^\d{1,9}$'
      or exists (select from jsonb_each(case jsonb_typeof(s.value -> 'weights') when 'object' then s.value -> 'weights' else '{}' end) w
                  where jsonb_typeof(w.value) <> 'number' or case jsonb_typeof(w.value) when 'number' then w.value::numeric < 0 or w.value::numeric > 1000000 end)
   limit 1;
  if bad is not null then
    raise exception 'rrf_sweep: a setting is %', left(bad::text, 200)
      using errcode = 'RD004', hint = 'It may have weights (by list, 0 to 1000000), rrf_k and candidates (whole numbers).';
  end if;
  perform from ragdb.rrf_fuse(lists, top => 0);  -- refuses lists of another shape

  return query
  with place as materialized (
    select distinct on (l.key, i.value::numeric) l.key as list, i.value::numeric::bigint as id, i.rank
      from jsonb_each(lists) l, jsonb_array_elements_text(l.value) with ordinality i(value, rank)
     order by l.key, i.value::numeric, i.rank),
  weighed as materialized (
    select s.n::integer as n, l.list, coalesce((s.value -> 'weights' ->> l.list)::double precision, 1) as weight,
           coalesce((s.value ->> 'rrf_k')::integer, 60) as k, (s.value ->> 'candidates')::integer as candidates
      from jsonb_array_elements(settings) with ordinality s(value, n)
     cross join (select distinct p.list from place p) l),
  fused as (
    select t.n, t.id, sum(t.s order by t.s) as score
      from (select w.n, p.id, ragdb.rrf(p.rank, w.weight, w.k) as s
              from weighed w join place p on p.list = w.list and (w.candidates is null or p.rank <= w.candidates)) t
     group by t.n, t.id)
  select f.n, array_agg(f.id order by f.score desc, f.id) from fused f group by f.n order by f.n;
end
$function$;
comment on function ragdb.rrf_sweep(jsonb, jsonb) is
  'The order that rrf_fuse gives under each of many settings (weights, rrf_k, candidates): one row a setting.';

-- The weights of lists as fuse counts them: where no list that holds anything has a weight above 0 (the only one that answered
-- is one that was to weigh nothing), all count the same, or their order would be that of the ids.
create or replace function ragdb.weights_that_count(lists jsonb, weights jsonb) returns jsonb
language plpgsql immutable parallel safe
set search_path from current
as $function$
begin
  if jsonb_typeof(lists) = 'object' and jsonb_typeof(weights) = 'object' and not exists (
       select from jsonb_each(lists) l
        where jsonb_typeof(l.value) <> 'array' or l.value <> '[]' and coalesce(weights -> l.key, '1') <> '0') then
    return '{}';
  end if;
  return weights;
end
$function$;
comment on function ragdb.weights_that_count(jsonb, jsonb) is 'The weights of lists; none where all that hold anything would weigh nothing.';
