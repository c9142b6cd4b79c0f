-- Live filters: a query of the owner's over tables of the application, by name, as a condition of a search.
--   select ragdb.register_filter('my_orders', 'select document_id from app.order_docs where customer_id = $1');
--   select * from ragdb.search('broken seal', "where" => '{"filter": {"my_orders": [42]}}');
-- It is joined when the search runs, so nothing is copied and nothing gets stale. It runs with the owner's rights.

-- A definition in pieces: parameters, text in quotes, everything between. Exact for what ragdb.register_filter() lets
-- through: no backslash, no comment and no dollar quote, so a quote ends at the next one (a doubled quote makes two pieces).
create or replace function ragdb.filter_pieces(definition text)
returns table (n bigint, piece text, quoted boolean, parameter integer)
language sql immutable strict
set search_path from current
as $function$
  select m.n, m.match[1], left(m.match[1], 1) in ('''', '"') and length(m.match[1]) > 1,
         case when m.match[1] ~ '^\$[0-9]{1,4}$' then substr(m.match[1], 2)::integer end
    from regexp_matches(definition, '''[^'']*''|"[^"]*"|\$[0-9]+|[^''"$]+|[''"$]', 'g') with ordinality as m(match, n)
$function$;
comment on function ragdb.filter_pieces(text) is 'A live filter''s definition in pieces: parameters, quoted text and the rest.';

-- Registers a filter, or replaces it: one SELECT of document ids, with parameters $1, $2, ...; for the schema's owner.
-- It is prepared here, under the search_path that it will run with, so tables need their schema's name.
create or replace function ragdb.register_filter(name text, definition text) returns void
language plpgsql
set search_path from current
as $function$
declare
  body text := rtrim(btrim(definition, E' \t\r\n'), E'; \t\r\n');
  bare text;                                            -- what stands outside quotes
  probe text := 'ragdb_filter_' || replace(gen_random_uuid()::text, '-', '');
  parameters text[];
  results text[];
  plan text;
  reason text;
begin
  perform ragdb.require_owner('registers filters');
  if coalesce(btrim(name), '') = '' or name <> btrim(name) or length(name) > 100 then
    raise exception 'the filter''s name is "%"', name
      using errcode = 'RD004', hint = 'It has 1 to 100 characters and no space at its ends.';
  end if;

  select string_agg(case when p.quoted then ' '' ' else p.piece end, '' order by p.n) into bare from ragdb.filter_pieces(body) p;
  reason := case
    when coalesce(bare, '') = '' then 'it is empty'
    when strpos(body, '\') > 0 then 'it holds a backslash'
    when bare ~ '--|/\*' then 'it holds a comment'
    when replace(bare, ' '' ', '') ~ '[''"]' then 'a quote does not end'
    when bare ~ ';' then 'it holds more than one statement'
    when bare ~ '[A-Za-z0-9_$\u0080-\U0010ffff]\$|\$([^0-9]|$)|\$[0-9]+[A-Za-z_$\u0080-\U0010ffff]|\$[0-9]{5}' then 'it holds a dollar sign that is no parameter'
  end;
  if reason is not null then
    raise exception 'filter "%" is refused: %', name, reason
      using errcode = 'RD004', hint = 'Write one SELECT, parameters as $1, $2, text in plain quotes, no comments.';
  end if;

  begin
    -- alone, so that its brackets are in pairs; then inside, where no INTO and nothing that writes may stand
    execute pg_catalog.format('prepare %I as %s', probe, body);
    select array(select format_type(t, -1) from unnest(s.parameter_types) with ordinality u(t, n) order by n),
           s.result_types::text[]
      into parameters, results
      from pg_prepared_statements s where s.name = probe;
    execute pg_catalog.format('deallocate %I', probe);
    execute pg_catalog.format('explain (generic_plan, verbose, format json) select f.document_id from (%s) f(document_id)', body) into plan;
  exception when others then
    reason := sqlerrm;
    if exists (select from pg_prepared_statements s where s.name = probe) then
      execute pg_catalog.format('deallocate %I', probe);
    end if;
    raise exception 'filter "%" cannot be prepared: %', name, reason
      using errcode = 'RD004', hint = case
        when reason like 'permission denied%' then 'It runs with the rights of ragdb''s owner: grant that role usage on the schema and select on the table.'
        else pg_catalog.format('It runs with search_path %s: write app.order_docs, not order_docs.', current_setting('search_path')) end;
  end;
  reason := case
    when plan ~ '"Node Type": "(LockRows|ModifyTable)"' then 'it locks or changes rows'
    when plan ~ '"Schema": "pg_(temp|toast_temp)' then 'it reads a temporary table'
    when cardinality(results) <> 1 then pg_catalog.format('it has %s columns', cardinality(results))
    when results[1] not in ('bigint', 'integer', 'smallint') then pg_catalog.format('its column is %s', results[1])
  end;
  if reason is not null then
    raise exception 'filter "%" is refused: %', name, reason
      using errcode = 'RD004', hint = 'Write one SELECT with one column, the document ids (bigint), from permanent tables.';
  end if;

  insert into ragdb.live_filter as f (name, definition, parameter_types)
  values (register_filter.name, body, parameters)
  on conflict on constraint live_filter_pkey do update
    set definition = excluded.definition, parameter_types = excluded.parameter_types, created_at = now();
end
$function$;
comment on function ragdb.register_filter(text, text) is
  'Registers a query of document ids, with parameters $1, $2, ..., as a filter for where: {"filter": {"name": [values]}}. For the schema''s owner.';

create or replace function ragdb.drop_filter(name text) returns void
language plpgsql
set search_path from current
as $function$
begin
  perform ragdb.require_owner('drops filters');
  delete from ragdb.live_filter f where f.name = drop_filter.name;
  if not found then
    raise exception 'no filter is registered as "%"', name
      using errcode = 'RD004', hint = 'Look at: select name, definition from ragdb.live_filter';
  end if;
end
$function$;
comment on function ragdb.drop_filter(text) is 'Forgets a live filter. For the schema''s owner.';

create or replace function ragdb.require_owner(does text) returns void
language plpgsql stable
set search_path from current
as $function$
begin
  if not (select pg_has_role(current_user, n.nspowner, 'usage') from pg_namespace n where n.nspname = 'ragdb') then
    raise exception 'only the owner of schema ragdb %', does using errcode = 'insufficient_privilege';
  end if;
end
$function$;
comment on function ragdb.require_owner(text) is 'Refuses everybody but the owner of schema ragdb.';

-- The condition of one filter with the values given for it; see ragdb.where_clause(). The values go into `vals`, each
-- as text that its type has accepted, read in UTC.
create or replace function ragdb.filter_condition(name text, given jsonb, inout vals jsonb, out condition text)
language plpgsql stable
set search_path from current
set timezone = 'UTC'
set datestyle = 'ISO, YMD'
set intervalstyle = 'postgres'
as $function$
declare
  f ragdb.live_filter;
  at integer := jsonb_array_length(vals);
  element jsonb;
  word text;
  accepted jsonb := '[]';
  body text;
begin
  select * into f from ragdb.live_filter x where x.name = filter_condition.name;
  if not found then
    raise exception 'where: no filter is registered as "%"', name
      using errcode = 'RD001', hint = 'The schema''s owner registers one: select ragdb.register_filter(name, definition)';
  end if;
  if jsonb_typeof(given) <> 'array' then
    raise exception 'where: filter "%" takes a list of values, not % (%)', name, jsonb_typeof(given), left(given::text, 80)
      using errcode = 'RD001', hint = pg_catalog.format('Write it like {"filter": {"%s": [...]}}, one value a parameter.', name);
  end if;
  if jsonb_array_length(given) <> cardinality(f.parameter_types) then
    raise exception 'where: filter "%" takes % values (%), not %', name, cardinality(f.parameter_types),
        array_to_string(f.parameter_types, ', '), jsonb_array_length(given)
      using errcode = 'RD001', hint = 'Give one value a parameter, in their order; a list for an array is one value.';
  end if;

  for i in 1 .. cardinality(f.parameter_types) loop
    element := given -> (i - 1);
    if element = 'null' then
      word := null;
    else
      begin
        -- an array is a list of plain values; only json takes an object
        if f.parameter_types[i] in ('json', 'jsonb') then
          word := element::text;
        elsif f.parameter_types[i] like '%[]' and jsonb_typeof(element) = 'array'
              and not jsonb_path_exists(element, 'strict $[*] ? (@.type() == "array" || @.type() == "object")') then
          word := array(select jsonb_array_elements_text(element))::text;
        elsif f.parameter_types[i] not like '%[]' and jsonb_typeof(element) not in ('array', 'object') then
          word := element #>> '{}';
        else
          raise exception using message = pg_catalog.format('it is %s', jsonb_typeof(element));
        end if;
        execute pg_catalog.format('select ($1::%s)::text', f.parameter_types[i]) into word using word;
      exception when others then
        raise exception 'where: filter "%" does not take % as its value % (%): %', name, left(element::text, 80), i, f.parameter_types[i], sqlerrm
          using errcode = 'RD001', hint = 'Give a value of that type.';
      end;
    end if;
    accepted := accepted || pg_catalog.jsonb_build_array(word);
  end loop;

  select string_agg(case when p.parameter is null then p.piece
                         else pg_catalog.format('(($2 -> %s ->> %s)::%s)', at, p.parameter - 1, f.parameter_types[p.parameter]) end, '' order by p.n)
    into body from ragdb.filter_pieces(f.definition) p;
  vals := vals || pg_catalog.jsonb_build_array(accepted);
  condition := pg_catalog.format('d.document_id in (select f.document_id from (%s) f(document_id))', body);

  -- Alone, without the document around it: a column that has gone from the application's table must be an error and
  -- not, by its name, a column of the document.
  begin
    execute pg_catalog.format('select from (%s) f(document_id) where false', body) using null::text, vals;
  exception when others then
    raise exception 'where: filter "%" no longer works: %', name, sqlerrm
      using errcode = 'RD007', hint = 'The schema''s owner registers it anew: select ragdb.register_filter(name, definition)';
  end;
end
$function$;
comment on function ragdb.filter_condition(text, jsonb, jsonb) is 'The condition of a live filter with its values, for ragdb.where_clause().';

-- What to say where a search failed because a live filter did while it read rows: its reason may carry values of the
-- application's tables, so only those who read all documents see it. Null where it was something else. A statement that
-- was cancelled is told anew too: where it stood, which PostgreSQL adds, is the text of the filter.
create or replace function ragdb.filter_error(collection_id bigint, "where" jsonb, state text, reason text) returns text
language plpgsql stable
set search_path from current
as $function$
begin
  if strpos(concat("where", ' ', ragdb.read_limits(collection_id)), '"filter"') = 0 then
    return null;
  end if;
  return case
    when state = '57014' then reason
    -- ours, or the server's own trouble (a deadlock, no memory): no fault of a filter
    when left(state, 2) in ('RD', '40', '53', '54', '55', '57', '58', 'XX') then null
    when ragdb.reads_all() then 'where: a live filter failed: ' || reason
    else 'where: a live filter failed; who writes documents sees why' end;
end
$function$;
comment on function ragdb.filter_error(bigint, jsonb, text, text) is
  'What to say where a live filter failed while it read rows, without its values for readers; null where it was something else.';

create or replace function ragdb.filter_error_state(state text) returns text
language sql immutable
set search_path from current
as $function$
  select case when state = '57014' then state else 'RD007' end
$function$;
comment on function ragdb.filter_error_state(text) is 'The SQLSTATE to raise what ragdb.filter_error() says with.';
