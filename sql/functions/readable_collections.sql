-- Who asks, also inside a SECURITY DEFINER function and after SET ROLE.
create or replace function ragdb.caller() returns name
language sql stable parallel safe
set search_path from current
as $function$
  select coalesce(nullif(current_setting('role'), 'none'), session_user)::name
$function$;
comment on function ragdb.caller() is 'The role that asks, right inside SECURITY DEFINER functions too.';

-- The collections that the caller may search. Until grants per collection exist, who may execute the search
-- functions (only their owner, unless granted) reads all.
create or replace function ragdb.readable_collections() returns bigint[]
language sql stable
set search_path from current
as $function$
  select coalesce(array_agg(collection_id order by collection_id), '{}') from ragdb.collection
$function$;
comment on function ragdb.readable_collections() is 'Ids of the collections that the caller may search.';

-- The row of a collection that the caller may search, by name.
create or replace function ragdb.readable_collection(collection text) returns ragdb.collection
language plpgsql stable
set search_path from current
as $function$
declare
  c ragdb.collection;
begin
  select * into c from ragdb.collection x
   where x.name = collection and x.collection_id = any (ragdb.readable_collections());
  if not found then
    raise exception 'collection "%" does not exist', collection
      using errcode = 'RD002', hint = 'Add a document to it, or look at: select name from ragdb.collection';
  end if;
  return c;
end
$function$;
comment on function ragdb.readable_collection(text) is 'The row of a collection that the caller may search; an error where there is none.';
