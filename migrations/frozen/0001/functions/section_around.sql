-- The innermost section around each of the given chunks in its document's ready revision, sub-sections included; no row
-- for a chunk that stands in none.
create or replace function ragdb.section_around(chunk_ids bigint[])
returns table (hit_chunk_id bigint, document_id bigint, heading_path text[], start_at integer, end_at integer)
language plpgsql stable rows 50
security definer
set search_path from current
set standard_conforming_strings = on
set client_min_messages = notice
as $function$
declare
  readable bigint[] := ragdb.readable_documents(array(select distinct k.document_id from ragdb.chunk k where k.chunk_id = any (chunk_ids)));
begin
  return query
  select p.chunk_id, p.document_id, s.path, s.start_at, s.end_at
    from unnest(chunk_ids) with ordinality as u(id, position)
    join ragdb.chunk_place p on p.chunk_id = u.id
    join ragdb.document d on d.document_id = p.document_id and d.ready_revision = p.revision
    join ragdb.section s on s.section_id = p.section_id
   where d.document_id = any (readable)
   order by u.position;
end
$function$;
comment on function ragdb.section_around(bigint[]) is 'The innermost section around each given chunk: where it begins and ends in its document.';
