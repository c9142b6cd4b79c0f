-- One column of a document after it is given again.
--   named by the caller: that. Found in the text (given -> 'found'): that, if the text says something else than last time;
--   else what is stored stays, so that a change made by hand outlives the next reading of the same page.
--   Found last time, named by nobody, unchanged since, and not in the text any more: `fallback`. Neither: what is stored stays.
create or replace function ragdb.settled(field text, stored text, before jsonb, given jsonb, fallback text) returns text
language sql immutable parallel safe
set search_path from current
as $function$
  select case
    when given ->> field is not null
         and (given #> array['found', field] is null or coalesce(given #>> array['found', field, 'overruled'], 'false') = 'true')
      then given ->> field
    when given ->> field is not null
      then case when before #>> array[field, 'value'] is distinct from given #>> array['found', field, 'value'] then given ->> field else stored end
    when jsonb_typeof(given -> 'found') = 'object' and given #> array['found', field] is null and stored = before #>> array[field, 'value']
         and coalesce(before #>> array[field, 'overruled'], 'false') <> 'true'
      then fallback
    else stored
  end
$function$;
comment on function ragdb.settled(text, text, jsonb, jsonb, text) is
  'A column of a document that is given again: what the caller names, else what its text newly says, else what is stored.';

-- A point in time as `settled` compares it: as the page said it, where it is that.
create or replace function ragdb.as_found(moment timestamptz, said jsonb) returns text
language sql stable parallel safe
set search_path from current
as $function$
  select case when moment = ragdb.as_timestamp(said ->> 'value') then said ->> 'value' else to_jsonb(moment) #>> '{}' end
$function$;
comment on function ragdb.as_found(timestamptz, jsonb) is 'A point in time in the words in which the page said it, where it is the same.';

-- The metadata of a document after it is given again: of a program's document what is given; of a page's each key by itself, as
-- ragdb.settled() does it for columns ("metadata.KEY" in found), and keys that nobody names any more stay, if the page did not bring them.
create or replace function ragdb.settled_metadata(stored jsonb, before jsonb, given jsonb) returns jsonb
language sql immutable parallel safe
set search_path from current
as $function$
  select case
    when jsonb_typeof(given -> 'found') is distinct from 'object' then coalesce(nullif(given -> 'metadata', 'null'), stored)
    else (
      select coalesce(jsonb_object_agg(s.key, s.value), '{}') from jsonb_each(stored) s
       where given #> array['found', 'metadata.' || s.key] is not null
          or s.value is distinct from before #> array['metadata.' || s.key, 'value']
          or coalesce(before #>> array['metadata.' || s.key, 'overruled'], 'false') = 'true')
      || (
      select coalesce(jsonb_object_agg(g.key, g.value), '{}')
        from jsonb_each(case when jsonb_typeof(given -> 'metadata') = 'object' then given -> 'metadata' else '{}' end) g
       where not stored ? g.key
          or given #> array['found', 'metadata.' || g.key] is null
          or coalesce(given #>> array['found', 'metadata.' || g.key, 'overruled'], 'false') = 'true'
          or given #> array['found', 'metadata.' || g.key, 'value'] is distinct from before #> array['metadata.' || g.key, 'value'])
  end
$function$;
comment on function ragdb.settled_metadata(jsonb, jsonb, jsonb) is
  'Metadata of a document that is given again: what the caller names, what its text newly says, and what is stored and nobody took back.';

-- What of a given document its text alone says: it waits with the text, and counts from the moment the text does.
create or replace function ragdb.said_by_text(given jsonb) returns jsonb
language sql immutable parallel safe
set search_path from current
as $function$
  select (select coalesce(jsonb_object_agg(g.key, g.value), '{}') from jsonb_each(given) g
           where g.key in ('found', 'metadata')
              or g.key in ('status', 'language', 'owner', 'version', 'updated_at', 'review_after')
                 and given #> array['found', g.key] is not null
                 and coalesce(given #>> array['found', g.key, 'overruled'], 'false') <> 'true')
$function$;
comment on function ragdb.said_by_text(jsonb) is 'The part of a given document that its own text says: found, metadata, and the columns found in it.';

-- The row that a document becomes when it is given (again), text and revisions aside.
create or replace function ragdb.document_columns(d ragdb.document, given jsonb) returns ragdb.document
language plpgsql stable
set search_path from current
as $function$
begin
  d.status := ragdb.settled('status', d.status, d.found, given, 'active');
  d.language := ragdb.settled('language', d.language, d.found, given, null);
  d.owner := ragdb.settled('owner', d.owner, d.found, given, null);
  d.version := ragdb.settled('version', d.version, d.found, given, null);
  d.updated_at := ragdb.as_timestamp(ragdb.settled('updated_at', ragdb.as_found(d.updated_at, d.found -> 'updated_at'), d.found, given, null));
  d.review_after := ragdb.as_timestamp(ragdb.settled('review_after', ragdb.as_found(d.review_after, d.found -> 'review_after'), d.found, given, null));
  d.metadata := ragdb.settled_metadata(d.metadata, d.found, given);
  d.source := coalesce(given ->> 'source', d.source);
  -- a text that comes without one is not the file's: the next sync of its folder reads the file again
  d.source_state := nullif(given -> 'source_state', 'null');
  if jsonb_typeof(given -> 'warnings') = 'array' then
    d.warnings := array(select jsonb_array_elements_text(given -> 'warnings'));
  end if;
  if jsonb_typeof(given -> 'found') = 'object' then
    d.found := given -> 'found';
  end if;
  return d;
end
$function$;
comment on function ragdb.document_columns(ragdb.document, jsonb) is
  'The row that a document becomes when it is given again: named columns, what its text newly says, and what is stored.';
