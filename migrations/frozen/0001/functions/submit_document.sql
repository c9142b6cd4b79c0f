-- A document from plain SQL, in the application's own transaction: the worker cuts and embeds it.
--   select * from ragdb.submit_document('help', 'article/17', body, title => 'Reset the router', metadata => '{"tenant": 7}');
-- Further columns in options: {"status", "language", "owner", "version", "updated_at", "review_after"}.
create or replace function ragdb.submit_document(
  collection text, uri text, content text, title text default null, metadata jsonb default null, options jsonb default '{}')
returns table (document_id bigint, ingest_state text, changed boolean)
language sql
set search_path from current
as $function$
  select p.document_id, p.ingest_state, p.changed
    from ragdb.put_document(collection, options || pg_catalog.jsonb_build_object('uri', uri, 'content', content, 'title', title, 'metadata', metadata)) p
$function$;
comment on function ragdb.submit_document(text, text, text, text, jsonb, jsonb) is
  'Adds or changes a document from SQL; a worker cuts and embeds it, the old text answers until then.';
