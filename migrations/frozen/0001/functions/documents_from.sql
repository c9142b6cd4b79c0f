-- For those who write, before they add. The documents of a collection that came from one of these files (`source`): {"sources": ["/home/me/docs/a.md", ...]}.
create or replace function ragdb.documents_from(collection text, files jsonb)
returns table (uri text, source text)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  -- left(): as document_source_idx has them
  select d.uri, d.source
    from ragdb.collection c
    cross join (select distinct x.source from jsonb_array_elements_text(files -> 'sources') as x(source)) g
    join ragdb.document d on d.collection_id = c.collection_id and left(d.source, 500) = left(g.source, 500) and d.source = g.source
   where c.name = collection and ragdb.reads_all()
   order by d.uri
$function$;
comment on function ragdb.documents_from(text, jsonb) is 'The documents of a collection that came from one of these files.';

-- For ragdb sync: the documents that came from this file, or from a file below this folder, with what is known of their
-- files, in pages. `folder` is a path without / at its end; the next page begins after the last row of this one.
create or replace function ragdb.documents_below(
  collection text, folder text, prefix text default '', after_source text default '', after_id bigint default 0, how_many integer default 5000)
returns table (document_id bigint, uri text, source text, source_state jsonb, ingest_state text)
language sql stable
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
  -- 0 is the character after /; by bytes, as the index is ordered, whatever the database's collation
  select d.document_id, d.uri, d.source, d.source_state, d.ingest_state
    from ragdb.document d
   where d.collection_id = (select c.collection_id from ragdb.collection c where c.name = collection) and ragdb.reads_all()
     and d.source is not null
     and left(d.source, 500) operator(pg_catalog.~>=~) left(folder, 500)
     and left(d.source, 500) operator(pg_catalog.~<=~) left(folder || '0', 500)
     and left(d.source, 500) operator(pg_catalog.~>=~) left(after_source, 500)
     and (left(d.source, 500) operator(pg_catalog.~>~) left(after_source, 500) or d.document_id > after_id)
     and (d.source = folder or starts_with(d.source, folder || '/')) and starts_with(d.uri, prefix)
   order by left(d.source, 500) using operator(pg_catalog.~<~), d.document_id
   limit how_many
$function$;
comment on function ragdb.documents_below(text, text, text, text, bigint, integer) is
  'The documents of a collection that came from a folder, with what is known of their files, in pages.';

-- For ragdb sync: what is known now of files: {"files": [{"source", "state", "read"?}, ...]}. Of a file that was only looked at
-- (its hash is what it was) a document that somebody has put meanwhile keeps what it has; of one that was read to its end,
-- `read`, every document takes it. Returns how many documents that concerns.
create or replace function ragdb.know_sources(collection text, files jsonb, prefix text default '') returns integer
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  n integer;
begin
  -- in one order, for who does the same beside it
  with given as (
    select e.value ->> 'source' as source, e.value -> 'state' as state, coalesce((e.value ->> 'read')::boolean, false) as read
      from jsonb_array_elements(files -> 'files') as e(value)),
  mine as (
    select d.document_id, g.state
      from given g
      join ragdb.document d on d.collection_id = c.collection_id and left(d.source, 500) = left(g.source, 500) and d.source = g.source
     where starts_with(d.uri, prefix) and d.source_state is distinct from g.state
       and (g.read or d.source_state ->> 'sha256' = g.state ->> 'sha256')
     order by d.document_id
       for no key update of d)
  update ragdb.document d set source_state = m.state from mine m where d.document_id = m.document_id;
  get diagnostics n = row_count;
  return n;
end
$function$;
comment on function ragdb.know_sources(text, jsonb, text) is 'Records what is known of files whose documents did not change; returns how many documents that concerns.';

-- For ragdb sync: a document under another uri, because its file was renamed. It stays the row that it was: its status, its metadata, its
-- chunks, and what quotes it. `stem` is how its chunks are called from now on. With `cut_again` its text is cut anew when it
-- is put next, as the name says how.
create or replace function ragdb.rename_document(collection text, uri text, new_uri text, source text, stem text, cut_again boolean default false)
returns boolean
language plpgsql
security definer
set search_path from current
set standard_conforming_strings = on
set enable_seqscan = off
as $function$
declare
  c ragdb.collection := ragdb.known_collection(collection);
  d ragdb.document;
begin
  select * into d from ragdb.document x where x.collection_id = c.collection_id and x.uri = rename_document.uri for update;
  if not found then
    return false;
  end if;
  if coalesce(new_uri, '') = '' or octet_length(new_uri) > 2000 then
    raise exception 'the new uri "%..." has % bytes', left(new_uri, 60), coalesce(octet_length(new_uri), 0)
      using errcode = 'RD004', hint = 'A uri has at least one byte and at most 2,000.';
  end if;
  if exists (select from ragdb.document x where x.collection_id = c.collection_id and x.uri = new_uri) then
    raise exception 'document "%" cannot become "%": there is one of that name', uri, new_uri
      using errcode = 'RD006', hint = 'Delete that one first, with ragdb.delete_document().';
  end if;
  -- for the trigger that keeps a document's uri
  perform set_config('ragdb.renamed', d.document_id::text, true);
  update ragdb.document x set uri = new_uri, source = coalesce(rename_document.source, x.source), source_state = null
   where x.document_id = d.document_id;
  perform set_config('ragdb.renamed', '', true);
  update ragdb.chunk_place p set label = stem || substring(p.label from '#[^#]*#[0-9]+$')
   where p.document_id = d.document_id and p.label ~ '#[^#]*#[0-9]+$';
  if cut_again then
    update ragdb.document_revision r set chunking = 'as ' || rename_document.uri || ': ' || r.chunking
     where r.document_id = d.document_id and r.chunking is not null;
  end if;
  return true;
exception when unique_violation then
  raise exception 'document "%" cannot become "%": there is one of that name by now', uri, new_uri
    using errcode = 'RD006', hint = 'Sync the folder again.';
end
$function$;
comment on function ragdb.rename_document(text, text, text, text, text, boolean) is
  'Gives a document another uri, for its file was renamed; its row, chunks and quotations stay. False where there is none.';
