-- Tells workers that listen that there is something to do, when the transaction commits. NOTIFY takes a lock that serialises
-- commits; where many write at once it is turned off, and workers find out by polling:
--   alter database shop set ragdb.notify = 'off';
create or replace function ragdb.wake_workers(collection text) returns void
language plpgsql
set search_path from current
as $function$
begin
  if lower(coalesce(current_setting('ragdb.notify', true), '')) not in ('off', 'false', 'no', '0') then
    perform pg_notify('ragdb_job', collection);
  end if;
end
$function$;
comment on function ragdb.wake_workers(text) is 'Tells workers that listen to channel ragdb_job that a collection has something to do; not where ragdb.notify is off.';
