-- A point in time from its text; one without an offset is UTC, whatever the session's TimeZone says.
create or replace function ragdb.as_timestamp(value text) returns timestamptz
language plpgsql stable strict
set search_path from current
set timezone = 'UTC'
as $function$
begin
  -- no other spelling: how 10/11/2012 is read depends on the session
  if value !~ '^\s*\d{4}-\d{2}-\d{2}(\s*$|[ T]\s*\d[\d:.]*\s*(Z|UTC|[+-]\d{2}(:?\d{2})?)?\s*$)' then
    raise invalid_datetime_format;
  end if;
  return value::timestamptz;
exception when others then
  raise exception '"%" is no date or time', value
    using errcode = 'RD001', hint = 'Write it like 2026-01-31 or 2026-01-31T09:30:00+09:00.';
end
$function$;
comment on function ragdb.as_timestamp(text) is 'A point in time from its text; without an offset it is UTC.';
