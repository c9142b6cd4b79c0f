-- Whether a given document has a column that differs from the stored one; keys that are not given do not count.
create or replace function ragdb.document_differs(d ragdb.document, given jsonb) returns boolean
language sql stable
set search_path from current
as $function$
  select coalesce(given ->> 'status' <> d.status, false)
      or given ->> 'language' is not null and given ->> 'language' is distinct from d.language
      or given ->> 'owner' is not null and given ->> 'owner' is distinct from d.owner
      or given ->> 'version' is not null and given ->> 'version' is distinct from d.version
      or given ->> 'updated_at' is not null and ragdb.as_timestamp(given ->> 'updated_at') is distinct from d.updated_at
      or given ->> 'review_after' is not null and ragdb.as_timestamp(given ->> 'review_after') is distinct from d.review_after
      or jsonb_typeof(given -> 'metadata') = 'object' and given -> 'metadata' is distinct from d.metadata
      or given ->> 'source' is not null and given ->> 'source' is distinct from d.source
      or jsonb_typeof(given -> 'warnings') = 'array' and given -> 'warnings' is distinct from to_jsonb(d.warnings)
$function$;
comment on function ragdb.document_differs(ragdb.document, jsonb) is 'Whether a given document differs in a column from the stored one.';
