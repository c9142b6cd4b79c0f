-- A caller's numbers as a vector of length 1, or an error that names what is wrong with them.
create or replace function ragdb.checked_vector(numbers double precision[], dims integer, model text) returns vector
language plpgsql immutable
set search_path from current
as $function$
declare
  v vector;
  largest double precision;
begin
  if cardinality(numbers) <> dims then
    raise exception 'the vector has % numbers, but model "%" has %', cardinality(numbers), model, dims
      using errcode = 'RD003', hint = 'Embed with the collection''s own model.';
  end if;
  -- what an embedder usually gives, of about length 1, is taken as it is
  begin
    v := numbers::vector;
    if vector_norm(v) between 0.5 and 2 then
      return l2_normalize(v);
    end if;
  exception when others then
    null;                                               -- null, NaN, too large for single precision: see below
  end;
  select max(abs(n)) into largest from unnest(numbers) n;
  if largest is null or largest = 'NaN' or largest = 'infinity' or largest = 0 or array_position(numbers, null) is not null then
    raise exception 'the vector for model "%" has null, NaN, infinite or only zero numbers', model
      using errcode = 'RD003', hint = 'Look at what the embedder returned.';
  end if;
  return l2_normalize((select array_agg(n / largest order by i) from unnest(numbers) with ordinality u(n, i))::vector);
end
$function$;
comment on function ragdb.checked_vector(double precision[], integer, text) is 'Numbers to a vector of length 1; an error where they cannot be one.';

-- Whether the HNSW index of a model is there and complete.
create or replace function ragdb.hnsw_is_valid(model_id bigint) returns boolean
language plpgsql stable
set search_path from current
as $function$
declare
  found oid := to_regclass('ragdb.embedding_hnsw_' || model_id);
begin
  return found is not null and exists (select from pg_index i where i.indexrelid = found and i.indisvalid and i.indisready);
end
$function$;
comment on function ragdb.hnsw_is_valid(bigint) is 'Whether the HNSW index of a model is there and complete.';
