-- `where` to a condition over ragdb.document d. The condition holds no text of the caller: it names its values by
-- their place in the array `vals`, which the query gets as its parameter $2.
--
--   {"tenant": 7}                         metadata; equality, typed: 7 and "7" differ
--   {"lang": ["en", "ja"]}                membership; [] matches nothing
--   {"uri": {"prefix": "handbook/"}}      operators: in not_in gt gte lt lte prefix contains exists
--   {"any": [{...}, {...}]}               one of these
--   {"filter": {"my_orders": [42]}}       a live filter and its values, see ragdb.register_filter()
--   status                                active unless given; a word, a list, or "any"
--
-- Own columns: status uri document_id title language owner version updated_at review_after.
create or replace function ragdb.where_clause("where" jsonb, depth integer default 0, inout vals jsonb default '[]', out condition text)
language plpgsql stable
set search_path from current
as $function$
declare
  key text;
  value jsonb;
  parts text[] := '{}';
  sub record;
  alternatives text[];
  alternative jsonb;
  op text;
  operand jsonb;
begin
  if jsonb_typeof("where") is distinct from 'object' then
    raise exception 'where is %, not an object', coalesce(jsonb_typeof("where"), 'null')
      using errcode = 'RD001', hint = 'Write it like {"tenant": 7, "status": "any"}.';
  end if;

  if depth > 20 then
    raise exception 'where is nested deeper than 20 levels'
      using errcode = 'RD001', hint = 'Alternatives of alternatives are alternatives: one "any" will do.';
  end if;

  for key, value in select e.key, e.value from jsonb_each("where") e loop
    if jsonb_array_length(vals) > 500 then
      raise exception 'where has more than 500 conditions'
        using errcode = 'RD001', hint = 'Put values of one key into a list: {"uri": ["a", "b"]}.';
    end if;
    if key = 'any' then
      if jsonb_typeof(value) <> 'array' then
        raise exception 'where: "any" takes a list of alternatives, not %', jsonb_typeof(value)
          using errcode = 'RD001', hint = 'Write it like {"any": [{"tenant": 7}, {"public": true}]}.';
      end if;
      if jsonb_array_length(value) > 500 then
        raise exception 'where: "any" has % alternatives, more than 500', jsonb_array_length(value)
          using errcode = 'RD001', hint = 'Put values of one key into a list: {"uri": ["a", "b"]}.';
      end if;
      alternatives := '{}';
      for alternative in select a.value from jsonb_array_elements(value) a loop
        sub := ragdb.where_clause(alternative, depth + 1, vals);
        vals := sub.vals;
        alternatives := alternatives || sub.condition;
      end loop;
      parts := parts || case when alternatives = '{}' then 'false' else '(' || array_to_string(alternatives, ' or ') || ')' end;
    elsif key = 'filter' then
      if jsonb_typeof(value) <> 'object' or value = '{}' then
        raise exception 'where: "filter" is %, and names no filter', left(value::text, 80)
          using errcode = 'RD001', hint = 'Write it like {"filter": {"my_orders": [42]}}: the name of a registered filter and its values.';
      end if;
      for op, operand in select e.key, e.value from jsonb_each(value) e loop
        sub := ragdb.filter_condition(op, operand, vals);
        vals := sub.vals;
        parts := parts || sub.condition;
      end loop;
    elsif key = 'status' and value = '"any"' then
      null;
    elsif jsonb_typeof(value) = 'object' then
      if value = '{}' then
        raise exception 'where: "%" has no operator', key
          using errcode = 'RD001', hint = 'Operators are in, not_in, gt, gte, lt, lte, prefix, contains, exists.';
      end if;
      for op, operand in select e.key, e.value from jsonb_each(value) e loop
        if op = 'eq' then
          raise exception 'where: "%" has an unknown operator "eq"', key
            using errcode = 'RD001', hint = 'Equality has none: {"tenant": 7}.';
        end if;
        sub := ragdb.where_condition(key, op, operand, vals);
        vals := sub.vals;
        parts := parts || sub.condition;
      end loop;
    else
      sub := ragdb.where_condition(key, case when jsonb_typeof(value) = 'array' then 'in' else 'eq' end, value, vals);
      vals := sub.vals;
      parts := parts || sub.condition;
    end if;
  end loop;

  if depth = 0 and not "where" ? 'status' then
    parts := array_prepend('d.status = ''active''', parts);
  end if;
  condition := case when parts = '{}' then 'true' else '(' || array_to_string(parts, ' and ') || ')' end;
end
$function$;
comment on function ragdb.where_clause(jsonb, integer, jsonb) is
  'where to a SQL condition over document d that takes its values from $2; raises on an unknown operator or a wrong shape.';
