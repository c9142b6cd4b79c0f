-- One condition of a `where`: a key (own column or metadata), an operator, an operand.
-- Returns SQL over ragdb.document d that reads its operand at $2 -> index; see ragdb.where_clause().
create or replace function ragdb.where_condition(key text, op text, operand jsonb, inout vals jsonb, out condition text)
language plpgsql stable
set search_path from current
as $function$
declare
  column_type constant jsonb := '{"status": "text", "uri": "text", "title": "text", "language": "text", "owner": "text",
    "version": "text", "document_id": "number", "updated_at": "time", "review_after": "time"}';
  kind text := column_type ->> key;                   -- null: metadata
  col text := pg_catalog.format('d.%I', key);
  at text := pg_catalog.format('$2 -> %s', jsonb_array_length(vals));
  at_text text := pg_catalog.format('$2 ->> %s', jsonb_array_length(vals));
  meta text := pg_catalog.format('d.metadata -> ($2 -> %s ->> ''key'')', jsonb_array_length(vals));
  meta_value text := pg_catalog.format('($2 -> %s -> ''value'')', jsonb_array_length(vals));
  utc constant text := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
  wanted text;
  element jsonb;
begin
  if op not in ('eq', 'in', 'not_in', 'gt', 'gte', 'lt', 'lte', 'prefix', 'contains', 'exists') then
    raise exception 'where: "%" has an unknown operator "%"', key, op
      using errcode = 'RD001', hint = 'Operators are in, not_in, gt, gte, lt, lte, prefix, contains, exists.';
  end if;
  wanted := case when op in ('in', 'not_in') then 'array'
                 when op = 'exists' then 'boolean'
                 when op = 'prefix' then 'string'
                 when op in ('gt', 'gte', 'lt', 'lte') and kind in ('text', 'time') then 'string'
                 when op in ('gt', 'gte', 'lt', 'lte') and kind = 'number' then 'number' end;
  if wanted <> jsonb_typeof(operand)
     or op in ('gt', 'gte', 'lt', 'lte') and jsonb_typeof(operand) not in ('string', 'number')
     or op = 'contains' and jsonb_typeof(operand) not in ('string', 'number', 'boolean')
     or op in ('prefix', 'contains') and kind in ('number', 'time') then
    raise exception 'where: "%" with "%" does not take % (%)', key, op, jsonb_typeof(operand), left(operand::text, 80)
      using errcode = 'RD001', hint = 'in and not_in take a list, exists true or false, prefix a string, gt to lte a string or a number.';
  end if;

  -- own columns: operands of the column's type, normalised here so that the query compares plain values
  if kind is not null and op in ('eq', 'in', 'not_in') then
    for element in select * from jsonb_array_elements(case when op = 'eq' then pg_catalog.jsonb_build_array(operand) else operand end) loop
      if jsonb_typeof(element) <> (case kind when 'number' then 'number' else 'string' end)
         and not (op = 'eq' and element = 'null') then
        raise exception 'where: "%" is compared with % (%)', key, jsonb_typeof(element), left(element::text, 80)
          using errcode = 'RD001', hint = pg_catalog.format('It is a %s.', kind);
      end if;
      if kind = 'number' and element <> 'null'
         and (element::numeric <> trunc(element::numeric) or abs(element::numeric) > 9223372036854775807) then
        raise exception 'where: "%" is compared with %', key, left(element::text, 80)
          using errcode = 'RD001', hint = 'It is a whole number of at most 19 digits.';
      end if;
      if key = 'status' and element #>> '{}' not in ('active', 'draft', 'archived') then
        raise exception 'where: status % is not known', element
          using errcode = 'RD001', hint = 'It is active, draft, archived, a list of these, or "any".';
      end if;
    end loop;
  end if;
  if kind = 'number' and op in ('eq', 'in', 'not_in') then
    -- 7.0 is the whole number 7, but no bigint
    operand := case when op = 'eq' then case when operand = 'null' then operand else to_jsonb(trunc(operand::numeric)) end
                    else (select coalesce(jsonb_agg(trunc(e::numeric)), '[]') from jsonb_array_elements(operand) e) end;
  end if;
  if kind = 'time' and jsonb_typeof(operand) = 'string' then
    operand := to_jsonb(to_char(ragdb.as_timestamp(operand #>> '{}') at time zone 'UTC', utc));
  elsif kind = 'time' and jsonb_typeof(operand) = 'array' then
    select coalesce(jsonb_agg(to_char(ragdb.as_timestamp(e) at time zone 'UTC', utc)), '[]') into operand
      from jsonb_array_elements_text(operand) e;
  end if;

  if kind is not null then
    at_text := '(' || at_text || ')' || case kind when 'number' then case when op = 'eq' then '::bigint' else '::numeric' end when 'time' then '::timestamptz' else '' end;
    condition := case op
      when 'eq' then case when operand = 'null' then col || ' is null' else pg_catalog.format('%s = %s', col, at_text) end
      when 'in' then pg_catalog.format('%s in (select e%s from jsonb_array_elements_text(%s) e)', col,
                            case kind when 'number' then '::bigint' when 'time' then '::timestamptz' else '' end, at)
      when 'not_in' then pg_catalog.format('(%s in (select e%s from jsonb_array_elements_text(%s) e)) is not true', col,
                            case kind when 'number' then '::bigint' when 'time' then '::timestamptz' else '' end, at)
      when 'exists' then pg_catalog.format('(%s is not null) = ($2 ->> %s)::boolean', col, jsonb_array_length(vals))
      when 'prefix' then pg_catalog.format('starts_with(%s, %s)', col, at_text)
      when 'contains' then pg_catalog.format('strpos(%s, %s) > 0', col, at_text)
      else pg_catalog.format('%s %s %s', col, case op when 'gt' then '>' when 'gte' then '>=' when 'lt' then '<' else '<=' end, at_text)
    end;
    vals := vals || pg_catalog.jsonb_build_array(operand);
    return;
  end if;

  condition := case op
    when 'eq' then case when operand = 'null' then pg_catalog.format('coalesce(%s, ''null'') = ''null''', meta)
                        else pg_catalog.format('d.metadata @> ($2 -> %s -> ''doc'')', jsonb_array_length(vals)) || pg_catalog.format(' and %s = %s', meta, meta_value) end
    when 'in' then pg_catalog.format('%s in (select e from jsonb_array_elements(%s) e)', meta, meta_value)
    when 'not_in' then pg_catalog.format('(%s in (select e from jsonb_array_elements(%s) e)) is not true', meta, meta_value)
    when 'exists' then pg_catalog.format('(d.metadata ? ($2 -> %s ->> ''key'')) = %s::boolean', jsonb_array_length(vals), meta_value)
    when 'prefix' then pg_catalog.format('jsonb_typeof(%1$s) = ''string'' and starts_with(%1$s #>> ''{}'', %2$s #>> ''{}'')', meta, meta_value)
    when 'contains' then pg_catalog.format('(jsonb_typeof(%1$s) = ''array'' and %1$s @> %2$s'
                             || ' or jsonb_typeof(%1$s) = ''string'' and jsonb_typeof(%2$s) = ''string'' and strpos(%1$s #>> ''{}'', %2$s #>> ''{}'') > 0)', meta, meta_value)
    else pg_catalog.format('jsonb_typeof(%1$s) = jsonb_typeof(%3$s) and %1$s %2$s %3$s', meta,
                case op when 'gt' then '>' when 'gte' then '>=' when 'lt' then '<' else '<=' end, meta_value)
  end;
  condition := '(' || condition || ')';
  vals := vals || pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('key', key, 'value', operand, 'doc', pg_catalog.jsonb_build_object(key, operand)));
end
$function$;
comment on function ragdb.where_condition(text, text, jsonb, jsonb) is 'One condition of a where, for ragdb.where_clause().';
