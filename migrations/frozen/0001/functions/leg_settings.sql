-- The planner settings that a leg's path runs with, {name, value, name, value, ...}. They are set for one statement and
-- put back: a SET clause on the function would hold for every path, for hnsw.* it needs rights that a plain owner
-- lacks, and a dump of such a function does not restore.
--   gin:  the planner does not know that @@ costs by the word, and would read the whole table.
--   hnsw: the planner's choice follows how vectors are stored, not how many match; only the index gives order here.
--         ef_search grows with the square root of the vectors: with too little, a search of well separated topics may end
--         in the wrong one altogether (docs/decisions/0008-ef-search.md). Relaxed order keeps what strict order throws away; the leg sorts by exact distance afterwards.
-- plpgsql, here and below: a search calls these each time, and this language keeps what it has parsed.
create or replace function ragdb.leg_settings(path text, candidates integer, vectors double precision default 0) returns text[]
language plpgsql immutable
set search_path from current
as $function$
begin
  return case path
    when 'gin' then array['enable_seqscan', 'off']
    when 'hnsw' then array['hnsw.ef_search', least(1000, greatest(200, candidates * 2, (0.6 * sqrt(vectors))::integer))::text, 'hnsw.iterative_scan', 'relaxed_order',
                           'enable_sort', 'off', 'enable_seqscan', 'off']
    else array[]::text[] end;
end
$function$;
comment on function ragdb.leg_settings(text, integer, double precision) is
  'The planner settings that a path of a leg (gin, hnsw) runs with, of so many vectors: name, value, name, value, ...';

-- Sets settings and returns what they were, to be put back by the same function. After an error the rollback does that.
create or replace function ragdb.swap_settings(settings text[]) returns text[]
language plpgsql
set search_path from current
as $function$
declare
  before text[] := settings;
begin
  for i in 1 .. cardinality(settings) by 2 loop
    before[i + 1] := current_setting(settings[i]);
    settings[i + 1] := set_config(settings[i], settings[i + 1], true);
  end loop;
  return before;
end
$function$;
comment on function ragdb.swap_settings(text[]) is 'Sets settings for the transaction (name, value, name, value, ...) and returns what they were in the same form.';

-- A leg's statement with its rows as two arrays, best first.
create or replace function ragdb.ranked_arrays(statement text) returns text
language plpgsql immutable
set search_path from current
as $function$
begin
  return 'select coalesce(array_agg(x.chunk_id order by x.score desc, x.chunk_id), ''{}''),
                 coalesce(array_agg(x.score order by x.score desc, x.chunk_id), ''{}'')
            from (' || statement || ') x';
end
$function$;
comment on function ragdb.ranked_arrays(text) is 'The statement of a leg, its rows as two arrays (chunk ids, scores), best first; null for none.';

-- The numbers of a leg's call, checked once for both legs.
create or replace function ragdb.check_limits(candidates integer, exact_limit integer) returns void
language plpgsql immutable
set search_path from current
as $function$
begin
  if candidates is null or candidates < 1 or candidates > 1000 then
    raise exception 'candidates is %; it is from 1 to 1000', coalesce(candidates::text, 'null') using errcode = 'RD004';
  end if;
  if exact_limit < 0 then
    raise exception 'exact_limit is %; it is at least 0', exact_limit using errcode = 'RD004';
  end if;
end
$function$;
comment on function ragdb.check_limits(integer, integer) is 'Errors where candidates or exact_limit of a leg''s call are out of range.';

-- A whole number of at most nine digits in options, or what holds without it.
create or replace function ragdb.whole_number(options jsonb, name text, otherwise integer) returns integer
language plpgsql immutable
set search_path from current
as $function$
begin
  if coalesce(options -> name, 'null') = 'null' then
    return otherwise;
  end if;
  if options ->> name !~ '^-?\d{1,9}$' then
    raise exception '% is %', name, left((options -> name)::text, 80) using errcode = 'RD004', hint = 'It is a whole number.';
  end if;
  return (options ->> name)::integer;
end
$function$;
comment on function ragdb.whole_number(jsonb, text, integer) is 'A whole number in options, or what holds without it; an error where it is something else.';

-- The model whose vectors a search reads: the collection's active one, or options.model (its name) or options.model_id, which
-- has to be one of the collection's sets.
create or replace function ragdb.chosen_model(c ragdb.collection, options jsonb) returns bigint
language plpgsql stable
set search_path from current
as $function$
declare
  asked_for bigint := ragdb.whole_number(options, 'model_id', null);
  name text := options ->> 'model';
begin
  if name is not null then
    asked_for := (select m.model_id from ragdb.embedding_model m where m.name = chosen_model.options ->> 'model');
  elsif asked_for is null then
    return c.active_model_id;
  end if;
  if asked_for = c.active_model_id
     or exists (select from ragdb.vector_set s where s.collection_id = c.collection_id and s.model_id = asked_for) then
    return asked_for;
  end if;
  raise exception 'collection "%" has no vector set of the model %', c.name, coalesce(left(name, 200), options ->> 'model_id')
    using errcode = 'RD003', hint = 'Look at: select * from ragdb.collection_models(''...''); a set is added by: ragdb embedder add';
end
$function$;
comment on function ragdb.chosen_model(ragdb.collection, jsonb) is
  'The model whose vectors a search reads: the collection''s active one, or that of the set in options.model or options.model_id.';
