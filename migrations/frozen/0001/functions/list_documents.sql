-- The documents of a collection that a `where` lets through, by uri; every status unless it says otherwise.
create or replace function ragdb.list_documents(
  collection text default 'default', "where" jsonb default '{"status": "any"}', how_many integer default 1000, after_uri text default '')
returns table (document_id bigint, uri text, title text, status text, ingest_state text, chunks integer, language text, owner text, version text,
               updated_at timestamptz, review_after timestamptz, metadata jsonb, source text, last_error text, warnings text[], ready_at timestamptz, found jsonb)
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  c ragdb.collection := ragdb.readable_collection(collection);
  filter record := ragdb.document_filter(c.collection_id, "where");
  reason text;
begin
  if how_many is null or how_many < 0 then
    raise exception 'how_many is %; it is at least 0', coalesce(how_many::text, 'null') using errcode = 'RD004';
  end if;
  return query execute pg_catalog.format($sql$
    select d.document_id, d.uri, d.title, d.status, d.ingest_state, d.n_chunks, d.language, d.owner, d.version,
           d.updated_at, d.review_after, d.metadata, d.source, d.last_error, d.warnings, d.ready_at, d.found
      from ragdb.document d
     where d.collection_id = $1 and %s and d.uri > $3
     order by d.uri
     limit $4$sql$, filter.condition)
    using c.collection_id, filter.vals, after_uri, how_many;
exception when query_canceled or others then
  reason := ragdb.filter_error((select x.collection_id from ragdb.collection x where x.name = collection), "where", sqlstate, sqlerrm);
  if reason is null then
    raise;
  end if;
  raise exception '%', reason using errcode = ragdb.filter_error_state(sqlstate);
end
$function$;
comment on function ragdb.list_documents(text, jsonb, integer, text) is 'The documents of a collection, filtered by a where, in pages by uri.';

-- One document with its text, or no row: the ready revision, or the pending one of a new document.
create or replace function ragdb.get_document(collection text, uri text)
returns table (document_id bigint, uri text, title text, status text, ingest_state text, chunks integer, language text, owner text, version text,
               updated_at timestamptz, review_after timestamptz, metadata jsonb, source text, last_error text, warnings text[], ready_at timestamptz,
               found jsonb, content text, source_state jsonb)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select l.*, r.content, d.source_state
    from ragdb.list_documents(collection, pg_catalog.jsonb_build_object('status', 'any', 'uri', get_document.uri), 1) l
    join ragdb.document d using (document_id)
    left join ragdb.document_revision r on r.document_id = d.document_id
          and r.revision = case when d.ready_revision > 0 then d.ready_revision else d.pending_revision end
$function$;
comment on function ragdb.get_document(text, text) is 'One document with its columns and its text.';

-- The chunks of a document's ready revision, in order.
create or replace function ragdb.document_chunks(collection text, uri text)
returns table (ordinal integer, chunk_id bigint, label text, heading_path text[], start_at integer, end_at integer, page integer, context text, content text)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
  select p.ordinal, k.chunk_id, p.label, coalesce(s.path, '{}'), p.start_at, p.end_at, p.page, k.context, k.content
    from ragdb.get_document(collection, uri) g
    join ragdb.document d using (document_id)
    join ragdb.chunk_place p on p.document_id = d.document_id and p.revision = d.ready_revision
    join ragdb.chunk k using (chunk_id)
    left join ragdb.section s using (section_id)
   order by p.ordinal
$function$;
comment on function ragdb.document_chunks(text, text) is 'The chunks of a document''s ready revision, in order.';

-- The title a document has or is about to get; null where there is no such document.
create or replace function ragdb.document_title(collection text, uri text) returns text
language plpgsql stable
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  id bigint := (select x.collection_id from ragdb.collection x where x.name = collection);
begin
  -- asked before a document is looked at: PostgreSQL counts rows read, for everybody to see
  if id is null or ragdb.read_limits(id) = '[]' then
    return null;
  end if;
  return (
    select coalesce(r.title, l.title)
      from ragdb.list_documents(collection, pg_catalog.jsonb_build_object('status', 'any', 'uri', document_title.uri), 1) l
      join ragdb.document d on d.document_id = l.document_id
      left join ragdb.document_revision r on r.document_id = d.document_id and r.revision = d.pending_revision);
end
$function$;
comment on function ragdb.document_title(text, text) is 'The title a document has or is about to get.';
